package main

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A group member that consumes, transforms and produces, by a GroupTransactSession of franz-go: it does and says what
// python_copier.py does.
func franzCopier(bootstrap, group, topic string) error {
	timeout, err := strconv.Atoi(os.Getenv("TRANSACTION_TIMEOUT_MS"))
	if err != nil {
		timeout = 60_000
	}
	gained := func(_ context.Context, _ *kgo.Client, given map[string][]int32) { say("assigned", given[topic]) }
	host, _ := os.Hostname()
	session, err := kgo.NewGroupTransactSession(franzOptions(
		bootstrap, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.Balancers(kgo.RoundRobinBalancer()),
		kgo.SessionTimeout(sessionTimeout), kgo.HeartbeatInterval(heartbeatInterval), kgo.FetchMaxWait(fetchWait),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.OnPartitionsAssigned(gained), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionalID("copier-"+host+"-"+strconv.Itoa(os.Getpid())+"-"+group),
		kgo.TransactionTimeout(time.Duration(timeout)*time.Millisecond),
	)...)
	if err != nil {
		return err
	}
	defer session.Close()
	asked, stop := untilAskedToLeave()
	defer stop()
	held := os.Getenv("HOLD")
	for asked.Err() == nil {
		records := session.PollRecords(asked, 10).Records()
		if len(records) == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		next := map[int32]int64{}
		for _, r := range records {
			copied := &kgo.Record{Topic: topic + "-copy", Partition: r.Partition, Value: r.Value}
			session.Produce(context.Background(), copied, nil)
			next[r.Partition] = r.Offset + 1
		}
		if err := session.Client().Flush(context.Background()); err != nil {
			return err
		}
		hold(&held)
		// It rewinds by itself to what is committed where it has not committed.
		committed, err := session.End(context.Background(), kgo.TryCommit)
		switch {
		case err != nil:
			return err
		case committed:
			say("committed", next)
		default:
			say("refused", "the group has rebalanced")
		}
	}
	return nil
}

// Stand still, once, if a test asked for it.
func hold(file *string) {
	if *file == "" {
		return
	}
	say("holding", true)
	for {
		if _, err := os.Stat(*file); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	*file = ""
}
