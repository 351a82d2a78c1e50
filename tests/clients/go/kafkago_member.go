package main

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

// A Reader does not tell its partitions, so the member is built of what a Reader is built of.
func kafkaGoMember(bootstrap, group, topic, strategy string) error {
	if strategy != "roundrobin" {
		return fmt.Errorf("kafka-go has no %s assignor", strategy)
	}
	consumer, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: group, Brokers: []string{bootstrap}, Topics: []string{topic},
		GroupBalancers: []kafka.GroupBalancer{kafka.RoundRobinGroupBalancer{}},
		SessionTimeout: sessionTimeout, RebalanceTimeout: sessionTimeout, HeartbeatInterval: heartbeatInterval,
		JoinGroupBackoff: 200 * time.Millisecond, StartOffset: kafka.FirstOffset,
	})
	if err != nil {
		return err
	}
	defer consumer.Close()
	asked, stop := untilAskedToLeave()
	defer stop()
	for asked.Err() == nil {
		generation, err := consumer.Next(asked)
		if err != nil {
			say("refused", err.Error())
			continue
		}
		partitions := []int{}
		for _, one := range generation.Assignments[topic] {
			partitions = append(partitions, one.ID)
			generation.Start(func(ctx context.Context) { kafkaGoConsume(ctx, bootstrap, topic, one, generation) })
		}
		say("assigned", partitions)
	}
	return nil
}

// Read one partition and commit each record, until the generation ends.
func kafkaGoConsume(
	ctx context.Context, bootstrap, topic string, given kafka.PartitionAssignment, generation *kafka.Generation,
) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, Topic: topic, Partition: given.ID, MaxWait: fetchWait,
		ReadBackoffMin: 10 * time.Millisecond, ReadBackoffMax: 50 * time.Millisecond,
	})
	defer reader.Close()
	if err := reader.SetOffset(given.Offset); err != nil {
		say("refused", err.Error())
		return
	}
	for {
		m, err := reader.ReadMessage(ctx)
		if err != nil {
			return
		}
		say("read", []any{m.Partition, m.Offset, string(m.Value)})
		next := map[int]int64{m.Partition: m.Offset + 1}
		if err := generation.CommitOffsets(map[string]map[int]int64{topic: next}); err != nil {
			say("refused", err.Error())
			return
		}
		say("committed", next)
	}
}
