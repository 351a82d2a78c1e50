package main

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A member of a share group; MODE says what it does with records (tests/clients/share/share_member.py).
func franzShareMember(bootstrap, group, topic string) error {
	mode := os.Getenv("MODE")
	results := func(_ *kgo.Client, all kgo.ShareAckResults) {
		for _, one := range all {
			if one.Err != nil {
				say("refused", one.Err.Error())
			} else {
				say("acknowledged", one.Partition)
			}
		}
	}
	own := []kgo.Opt{
		kgo.ShareGroup(group), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.ShareAckCallback(results),
	}
	if limit := os.Getenv("MAX_RECORDS"); limit != "" {
		count, err := strconv.Atoi(limit)
		if err != nil {
			return err
		}
		own = append(own, kgo.ShareMaxRecords(int32(count)), kgo.ShareMaxRecordsStrict())
	}
	client, err := kgo.NewClient(franzOptions(bootstrap, own...)...)
	if err != nil {
		return err
	}
	defer client.Close()
	asked, stop := untilAskedToLeave()
	defer stop()
	for asked.Err() == nil {
		records := client.PollFetches(asked).Records()
		if len(records) == 0 {
			continue
		}
		say("polled", len(records))
		for _, record := range records {
			say("read", []any{record.Partition, record.Offset, string(record.Value), record.DeliveryCount()})
			switch {
			case mode == "release" && record.DeliveryCount() == 1:
				record.Ack(kgo.AckRelease)
			case mode == "reject":
				record.Ack(kgo.AckReject)
			case mode == "renew":
				record.Ack(kgo.AckRenew)
			default:
				record.Ack(kgo.AckAccept)
			}
		}
		flush(client)
		if mode == "renew" {
			client.MarkAcks(kgo.AckAccept, records...)
			flush(client)
		}
	}
	return nil
}

func flush(client *kgo.Client) {
	limited, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := client.FlushAcks(limited); err != nil {
		say("refused", err.Error())
	}
}
