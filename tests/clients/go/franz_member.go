package main

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var franzStrategies = map[string]func() kgo.GroupBalancer{
	"roundrobin":         kgo.RoundRobinBalancer,
	"range":              kgo.RangeBalancer,
	"cooperative-sticky": kgo.CooperativeStickyBalancer,
}

// With PROTOCOL=consumer the broker assigns (KIP-848); INSTANCE makes the member static.
func franzMember(bootstrap, group, topic, strategy string) error {
	newProtocol := os.Getenv("PROTOCOL") == "consumer"
	// The callbacks run one at a time.
	owned := []int32{}
	gained := func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
		owned = append(owned, given[topic]...)
		say("assigned", owned)
	}
	lost := func(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
		owned = slices.DeleteFunc(owned, func(one int32) bool { return slices.Contains(taken[topic], one) })
		if newProtocol || strategy == "cooperative-sticky" { // else all partitions are taken, and then given
			say("assigned", owned)
		}
	}
	protocol := []kgo.Opt{
		kgo.Balancers(franzStrategies[strategy]()), kgo.SessionTimeout(sessionTimeout),
		kgo.HeartbeatInterval(heartbeatInterval),
	}
	if newProtocol {
		protocol = []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}
	}
	if instance := os.Getenv("INSTANCE"); instance != "" {
		protocol = append(protocol, kgo.InstanceID(instance))
	}
	client, err := kgo.NewClient(franzOptions(bootstrap, append(protocol,
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(fetchWait),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(gained), kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost),
	)...)...)
	if err != nil {
		return err
	}
	defer client.Close()
	asked, stop := untilAskedToLeave()
	defer stop()
	for asked.Err() == nil {
		fetched := client.PollFetches(asked)
		records := fetched.Records()
		next := map[int32]int64{}
		for _, r := range records {
			say("read", []any{r.Partition, r.Offset, string(r.Value)})
			next[r.Partition] = r.Offset + 1
		}
		if len(records) == 0 {
			continue
		}
		limited, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := client.CommitRecords(limited, records...); err != nil {
			say("refused", err.Error())
		} else {
			say("committed", next)
		}
		cancel()
	}
	return nil
}
