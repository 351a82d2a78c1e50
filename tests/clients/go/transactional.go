package main

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Transactions of franz-go and sarama: `clients transactional LIBRARY BOOTSTRAP`, asked like a driver. Producers have
// the names that the test gives them; a reader reads partition 0 up to a value that is the last one.
var transactional = map[string]func(bootstrap string) verbs{
	"franz-go": franzTransactional,
	"sarama":   saramaTransactional,
}

// How long a call may take.
const patience = 25 * time.Second

type franzProducers struct {
	bootstrap string
	made      map[string]*kgo.Client
}

func franzTransactional(bootstrap string) verbs {
	f := &franzProducers{bootstrap, map[string]*kgo.Client{}}
	return verbs{
		"open": f.open, "begin": f.begin, "send": f.send, "values": f.values,
		"commit": func(c command) (any, error) { return f.end(c, kgo.TryCommit) },
		"abort":  func(c command) (any, error) { return f.end(c, kgo.TryAbort) },
	}
}

func (f *franzProducers) open(c command) (any, error) {
	made, err := kgo.NewClient(franzOptions(
		f.bootstrap, kgo.TransactionalID(c.TransactionalID), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionTimeout(time.Duration(c.TimeoutMs)*time.Millisecond),
	)...)
	if err != nil {
		return nil, err
	}
	f.made[c.Producer] = made
	// It asks for its producer id with the first record otherwise.
	_, _, err = made.ProducerID(context.Background())
	return nil, err
}

func (f *franzProducers) begin(c command) (any, error) {
	return nil, f.made[c.Producer].BeginTransaction()
}

func (f *franzProducers) send(c command) (any, error) {
	batch := make([]*kgo.Record, len(c.Values))
	for i, value := range c.Values {
		batch[i] = &kgo.Record{Topic: c.Topic, Value: []byte(value)}
	}
	return nil, f.made[c.Producer].ProduceSync(context.Background(), batch...).FirstErr()
}

func (f *franzProducers) end(c command, how kgo.TransactionEndTry) (any, error) {
	return nil, f.made[c.Producer].EndTransaction(context.Background(), how)
}

func (f *franzProducers) values(c command) (any, error) {
	level := kgo.ReadUncommitted()
	if c.Committed {
		level = kgo.ReadCommitted()
	}
	reader, err := kgo.NewClient(franzOptions(
		f.bootstrap, kgo.FetchIsolationLevel(level),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: {0: kgo.NewOffset().AtStart()}}),
	)...)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	limit, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found := []string{}
	for {
		fetched := reader.PollFetches(limit)
		if err := fetched.Err(); err != nil {
			return nil, fmt.Errorf("after %v: %w", found, err)
		}
		for _, record := range fetched.Records() {
			if string(record.Value) == c.Last {
				return found, nil
			}
			found = append(found, string(record.Value))
		}
	}
}

type saramaProducers struct {
	bootstrap []string
	made      map[string]sarama.SyncProducer
}

func saramaTransactional(bootstrap string) verbs {
	s := &saramaProducers{[]string{bootstrap}, map[string]sarama.SyncProducer{}}
	return verbs{
		"open": s.open, "send": s.send, "send_offset": s.sendOffset, "values": s.values,
		"begin":  func(c command) (any, error) { return nil, s.made[c.Producer].BeginTxn() },
		"commit": func(c command) (any, error) { return nil, s.made[c.Producer].CommitTxn() },
		"abort":  func(c command) (any, error) { return nil, s.made[c.Producer].AbortTxn() },
	}
}

func (s *saramaProducers) open(c command) (any, error) {
	config := saramaConfig()
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max, config.Producer.Retry.Backoff = 100, 50*time.Millisecond
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Transaction.ID = c.TransactionalID
	config.Producer.Transaction.Timeout = time.Duration(c.TimeoutMs) * time.Millisecond
	config.Producer.Transaction.Retry.Max, config.Producer.Transaction.Retry.Backoff = 100, 50*time.Millisecond
	made, err := sarama.NewSyncProducer(s.bootstrap, config)
	s.made[c.Producer] = made
	return nil, err
}

func (s *saramaProducers) send(c command) (any, error) {
	for _, value := range c.Values {
		one := &sarama.ProducerMessage{Topic: c.Topic, Value: sarama.StringEncoder(value)}
		if _, _, err := s.made[c.Producer].SendMessage(one); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (s *saramaProducers) sendOffset(c command) (any, error) {
	offset := []*sarama.PartitionOffsetMetadata{{Partition: 0, Offset: c.Offset}}
	return nil, s.made[c.Producer].AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{c.Topic: offset}, c.Group)
}

func (s *saramaProducers) values(c command) (any, error) {
	config := saramaConfig()
	if c.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(s.bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	reader, err := consumer.ConsumePartition(c.Topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	limit := time.After(patience)
	found := []string{}
	for {
		select {
		case message := <-reader.Messages():
			if string(message.Value) == c.Last {
				return found, nil
			}
			found = append(found, string(message.Value))
		case <-limit:
			return nil, fmt.Errorf("the last record does not come after %v", found)
		}
	}
}
