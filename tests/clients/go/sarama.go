package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

type saramaClient struct {
	bootstrap []string
	client    sarama.Client
	admin     sarama.ClusterAdmin
	producers map[string]sarama.SyncProducer
}

func saramaDriver(bootstrap string) (verbs, error) {
	s := &saramaClient{bootstrap: []string{bootstrap}, producers: map[string]sarama.SyncProducer{}}
	var err error
	if s.client, err = sarama.NewClient(s.bootstrap, saramaConfig()); err != nil {
		return nil, err
	}
	if s.admin, err = sarama.NewClusterAdminFromClient(s.client); err != nil {
		return nil, err
	}
	return verbs{
		"write": s.write, "read": s.read, "choose": s.choose, "offset_for_time": s.offsetForTime, "bounds": s.bounds,
		"create_topic": s.createTopic, "topics": s.topics, "add_partitions": s.addPartitions, "configs": s.configs,
		"set_config": s.setConfig, "delete_records": s.deleteRecords, "delete_topic": s.deleteTopic,
		"groups": s.groups, "describe_group": s.describeGroup, "group_offsets": s.groupOffsets,
		"delete_group": s.deleteGroup,
	}, nil
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.ClientID = "sarama"
	config.Metadata.Retry.Max = 20
	config.Metadata.Retry.Backoff = 50 * time.Millisecond
	config.Consumer.Retry.Backoff = 50 * time.Millisecond
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	saramaLogin(config)
	return config
}

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

// A codec and a partitioner are settings of a producer, so each pair has one; all are idempotent.
func (s *saramaClient) producer(codec string, partitioner sarama.PartitionerConstructor, name string) (sarama.SyncProducer, error) {
	name += codec
	if s.producers[name] == nil {
		config := saramaConfig()
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Return.Successes = true
		config.Producer.Retry.Max = 20
		config.Producer.Compression = saramaCodecs[codec]
		config.Producer.Partitioner = partitioner
		made, err := sarama.NewSyncProducer(s.bootstrap, config)
		if err != nil {
			return nil, err
		}
		s.producers[name] = made
	}
	return s.producers[name], nil
}

func encoder(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}

func (s *saramaClient) write(c command) (any, error) {
	producer, err := s.producer(c.Codec, sarama.NewManualPartitioner, "manual ")
	if err != nil {
		return nil, err
	}
	batch := make([]*sarama.ProducerMessage, len(c.Messages))
	for i, m := range c.Messages {
		batch[i] = &sarama.ProducerMessage{
			Topic: c.Topic, Partition: c.Partition, Key: encoder(m.Key), Value: encoder(m.Value),
		}
		if m.Timestamp != nil {
			batch[i].Timestamp = time.UnixMilli(*m.Timestamp)
		}
		for _, h := range m.Headers {
			batch[i].Headers = append(batch[i].Headers, sarama.RecordHeader{Key: []byte(h.name), Value: h.value})
		}
	}
	var failed sarama.ProducerErrors
	if err := producer.SendMessages(batch); errors.As(err, &failed) {
		return nil, failed[0].Err
	} else {
		return nil, err
	}
}

func (s *saramaClient) choose(c command) (any, error) {
	producer, err := s.producer("none", sarama.NewMurmur2Partitioner, "murmur2 ")
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(c.Key)
	if err != nil {
		return nil, err
	}
	partition, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: c.Topic, Key: sarama.ByteEncoder(key)})
	return partition, err
}

func (s *saramaClient) read(c command) (any, error) {
	consumer, err := sarama.NewConsumerFromClient(s.client)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	reader, err := consumer.ConsumePartition(c.Topic, c.Partition, c.Offset)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	found := []message{}
	for len(found) < c.Count {
		m, open := <-reader.Messages()
		if !open {
			return nil, fmt.Errorf("the reader ended after %d messages", len(found))
		}
		at := m.Timestamp.UnixMilli()
		headers := []header{}
		for _, h := range m.Headers {
			headers = append(headers, header{string(h.Key), h.Value})
		}
		found = append(found, message{m.Key, m.Value, headers, &at, m.Offset})
	}
	return found, nil
}

func (s *saramaClient) offsetForTime(c command) (any, error) {
	return s.client.GetOffset(c.Topic, c.Partition, c.Timestamp)
}

func (s *saramaClient) bounds(c command) (any, error) {
	low, err := s.client.GetOffset(c.Topic, c.Partition, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	high, err := s.client.GetOffset(c.Topic, c.Partition, sarama.OffsetNewest)
	return []int64{low, high}, err
}

func (s *saramaClient) createTopic(c command) (any, error) {
	detail := &sarama.TopicDetail{NumPartitions: c.Partitions, ReplicationFactor: 1, ConfigEntries: map[string]*string{}}
	for name, value := range c.Configs {
		detail.ConfigEntries[name] = &value
	}
	return nil, s.admin.CreateTopic(c.Topic, detail, false)
}

func (s *saramaClient) topics(command) (any, error) {
	listed, err := s.admin.ListTopics()
	found := map[string]int32{}
	for name, detail := range listed {
		found[name] = detail.NumPartitions
	}
	return found, err
}

func (s *saramaClient) addPartitions(c command) (any, error) {
	return nil, s.admin.CreatePartitions(c.Topic, c.Total, nil, false)
}

func (s *saramaClient) configs(c command) (any, error) {
	entries, err := s.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: c.Topic})
	found := map[string]string{}
	for _, entry := range entries {
		found[entry.Name] = entry.Value
	}
	return found, err
}

func (s *saramaClient) setConfig(c command) (any, error) {
	change := map[string]sarama.IncrementalAlterConfigsEntry{
		c.Key: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &c.Value},
	}
	return nil, s.admin.IncrementalAlterConfig(sarama.TopicResource, c.Topic, change, false)
}

func (s *saramaClient) deleteRecords(c command) (any, error) {
	return nil, s.admin.DeleteRecords(c.Topic, map[int32]int64{c.Partition: c.Before})
}

func (s *saramaClient) deleteTopic(c command) (any, error) {
	return nil, s.admin.DeleteTopic(c.Topic)
}

func (s *saramaClient) groups(command) (any, error) {
	listed, err := s.admin.ListConsumerGroups()
	names := []string{}
	for name := range listed {
		names = append(names, name)
	}
	return names, err
}

func (s *saramaClient) describeGroup(c command) (any, error) {
	groups, err := s.admin.DescribeConsumerGroups([]string{c.Group})
	if err != nil {
		return nil, err
	}
	group := groups[0]
	if group.Err != sarama.ErrNoError {
		return nil, group.Err
	}
	found := described{group.State, map[string][]int32{}}
	for id, member := range group.Members {
		assignment, err := member.GetMemberAssignment()
		if err != nil {
			return nil, err
		}
		found.Members[id] = []int32{}
		if assignment != nil { // there is none while the group rebalances
			found.Members[id] = append([]int32{}, assignment.Topics[c.Topic]...)
		}
	}
	return found, nil
}

func (s *saramaClient) groupOffsets(c command) (any, error) {
	answer, err := s.admin.ListConsumerGroupOffsets(c.Group, nil)
	if err != nil {
		return nil, err
	}
	found := map[int32]int64{}
	for partition, block := range answer.Blocks[c.Topic] {
		found[partition] = block.Offset
	}
	return found, nil
}

func (s *saramaClient) deleteGroup(c command) (any, error) {
	return nil, s.admin.DeleteConsumerGroup(c.Group)
}
