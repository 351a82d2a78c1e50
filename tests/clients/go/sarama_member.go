package main

import (
	"slices"
	"sync"

	"github.com/IBM/sarama"
)

var saramaStrategies = map[string]func() sarama.BalanceStrategy{
	"roundrobin":         sarama.NewBalanceStrategyRoundRobin,
	"range":              sarama.NewBalanceStrategyRange,
	"cooperative-sticky": sarama.NewBalanceStrategyCooperativeSticky,
}

func saramaMember(bootstrap, group, topic, strategy string) error {
	config := saramaConfig()
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{saramaStrategies[strategy]()}
	config.Consumer.Group.Session.Timeout = sessionTimeout
	config.Consumer.Group.Heartbeat.Interval = heartbeatInterval
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.MaxWaitTime = fetchWait
	config.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumerGroup([]string{bootstrap}, group, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	go func() {
		for err := range consumer.Errors() {
			say("refused", err.Error())
		}
	}()
	asked, stop := untilAskedToLeave()
	defer stop()
	handler := &saramaHandler{topic: topic, cooperative: strategy == "cooperative-sticky"}
	for asked.Err() == nil {
		if err := consumer.Consume(asked, []string{topic}, handler); err != nil {
			say("refused", err.Error())
		}
	}
	return nil
}

// With an eager strategy each rebalance makes a session, whose claims are all there is; with a cooperative one the
// session lives on, and a claim begins and ends by itself.
type saramaHandler struct {
	topic       string
	cooperative bool
	mutex       sync.Mutex
	claimed     []int32
}

func (h *saramaHandler) Setup(session sarama.ConsumerGroupSession) error {
	if !h.cooperative {
		say("assigned", append([]int32{}, session.Claims()[h.topic]...))
	}
	return nil
}

func (h *saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *saramaHandler) begin(partition int32) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.claimed = append(h.claimed, partition)
	if h.cooperative {
		say("assigned", h.claimed)
	}
}

func (h *saramaHandler) end(partition int32) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.claimed = slices.DeleteFunc(h.claimed, func(one int32) bool { return one == partition })
	if h.cooperative {
		say("assigned", h.claimed)
	}
}

func (h *saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	h.begin(claim.Partition())
	defer h.end(claim.Partition())
	for {
		select {
		case <-session.Context().Done():
			return nil
		case m, open := <-claim.Messages():
			if !open {
				return nil
			}
			say("read", []any{m.Partition, m.Offset, string(m.Value)})
			session.MarkMessage(m, "")
			session.Commit()
		}
	}
}
