package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
)

type kafkaGoClient struct {
	address   net.Addr
	bootstrap string
	client    *kafka.Client
	transport *kafka.Transport
}

func kafkaGoDriver(bootstrap string) (verbs, error) {
	transport := &kafka.Transport{ClientID: "kafka-go", MetadataTTL: 100 * time.Millisecond}
	address := kafka.TCP(bootstrap)
	k := &kafkaGoClient{address, bootstrap, &kafka.Client{Addr: address, Transport: transport}, transport}
	return verbs{
		"write": k.write, "read": k.read, "choose": k.choose, "offset_for_time": k.offsetForTime, "bounds": k.bounds,
		"create_topic": k.createTopic, "topics": k.topics, "add_partitions": k.addPartitions, "configs": k.configs,
		"set_config": k.setConfig, "delete_topic": k.deleteTopic,
		"groups": k.groups, "describe_group": k.describeGroup, "group_offsets": k.groupOffsets,
		"delete_group": k.deleteGroup,
	}, nil
}

var kafkaGoCodecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func (k *kafkaGoClient) writer(topic, codec string, balancer kafka.Balancer) *kafka.Writer {
	return &kafka.Writer{
		Addr: k.address, Topic: topic, Balancer: balancer, Compression: kafkaGoCodecs[codec],
		RequiredAcks: kafka.RequireAll, AllowAutoTopicCreation: true, BatchTimeout: 5 * time.Millisecond,
		Transport: k.transport,
	}
}

// The error of the first message that was not written.
func firstOf(err error) error {
	var each kafka.WriteErrors
	if errors.As(err, &each) {
		for _, one := range each {
			if one != nil {
				return one
			}
		}
	}
	return err
}

func (k *kafkaGoClient) write(c command) (any, error) {
	fixed := kafka.BalancerFunc(func(kafka.Message, ...int) int { return int(c.Partition) })
	writer := k.writer(c.Topic, c.Codec, fixed)
	defer writer.Close()
	batch := make([]kafka.Message, len(c.Messages))
	for i, m := range c.Messages {
		batch[i] = kafka.Message{Key: m.Key, Value: m.Value}
		if m.Timestamp != nil {
			batch[i].Time = time.UnixMilli(*m.Timestamp)
		}
		for _, h := range m.Headers {
			batch[i].Headers = append(batch[i].Headers, kafka.Header{Key: h.name, Value: h.value})
		}
	}
	// The caller must retry while a topic is being created (kafka-go's README).
	for range 20 {
		err := firstOf(writer.WriteMessages(context.Background(), batch...))
		if !errors.Is(err, kafka.LeaderNotAvailable) {
			return nil, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, kafka.LeaderNotAvailable
}

func (k *kafkaGoClient) choose(c command) (any, error) {
	key, err := base64.StdEncoding.DecodeString(c.Key)
	if err != nil {
		return nil, err
	}
	chosen := -1
	murmur2 := kafka.Murmur2Balancer{Consistent: true}
	writer := k.writer(c.Topic, "none", kafka.BalancerFunc(func(m kafka.Message, partitions ...int) int {
		chosen = murmur2.Balance(m, partitions...)
		return chosen
	}))
	defer writer.Close()
	err = firstOf(writer.WriteMessages(context.Background(), kafka.Message{Key: key}))
	return chosen, err
}

func (k *kafkaGoClient) read(c command) (any, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{k.bootstrap}, Topic: c.Topic, Partition: int(c.Partition), MaxWait: 100 * time.Millisecond,
		ReadBackoffMin: 10 * time.Millisecond, OffsetOutOfRangeError: true,
	})
	defer reader.Close()
	if err := reader.SetOffset(c.Offset); err != nil {
		return nil, err
	}
	found := []message{}
	for len(found) < c.Count {
		m, err := reader.ReadMessage(context.Background())
		if err != nil {
			return nil, err
		}
		at := m.Time.UnixMilli()
		headers := []header{}
		for _, h := range m.Headers {
			headers = append(headers, header{h.Key, h.Value})
		}
		found = append(found, message{m.Key, m.Value, headers, &at, m.Offset})
	}
	return found, nil
}

func (k *kafkaGoClient) listed(c command, asked ...kafka.OffsetRequest) (kafka.PartitionOffsets, error) {
	answer, err := k.client.ListOffsets(context.Background(), &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{c.Topic: asked},
	})
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	found := answer.Topics[c.Topic]
	if len(found) != 1 {
		return kafka.PartitionOffsets{}, fmt.Errorf("%d answers for one partition", len(found))
	}
	return found[0], found[0].Error
}

func (k *kafkaGoClient) offsetForTime(c command) (any, error) {
	found, err := k.listed(c, kafka.TimeOffsetOf(int(c.Partition), time.UnixMilli(c.Timestamp)))
	for offset := range found.Offsets {
		return offset, err
	}
	return -1, err
}

func (k *kafkaGoClient) bounds(c command) (any, error) {
	partition := int(c.Partition)
	found, err := k.listed(c, kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition))
	return []int64{found.FirstOffset, found.LastOffset}, err
}

func (k *kafkaGoClient) createTopic(c command) (any, error) {
	topic := kafka.TopicConfig{Topic: c.Topic, NumPartitions: int(c.Partitions), ReplicationFactor: 1}
	for name, value := range c.Configs {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	answer, err := k.client.CreateTopics(
		context.Background(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	if err != nil {
		return nil, err
	}
	return nil, answer.Errors[c.Topic]
}

// A connection of its own asks the broker; the Client answers from a cache.
func (k *kafkaGoClient) topics(command) (any, error) {
	connection, err := kafka.Dial("tcp", k.bootstrap)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	partitions, err := connection.ReadPartitions()
	found := map[string]int{}
	for _, partition := range partitions {
		found[partition.Topic]++
	}
	return found, err
}

func (k *kafkaGoClient) addPartitions(c command) (any, error) {
	answer, err := k.client.CreatePartitions(context.Background(), &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: c.Topic, Count: c.Total}},
	})
	if err != nil {
		return nil, err
	}
	// With its connections a Transport forgets how many partitions there were.
	k.transport.CloseIdleConnections()
	return nil, answer.Errors[c.Topic]
}

func (k *kafkaGoClient) configs(c command) (any, error) {
	answer, err := k.client.DescribeConfigs(context.Background(), &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: c.Topic}},
	})
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, entry := range answer.Resources[0].ConfigEntries {
		found[entry.ConfigName] = entry.ConfigValue
	}
	return found, answer.Resources[0].Error
}

func (k *kafkaGoClient) setConfig(c command) (any, error) {
	answer, err := k.client.IncrementalAlterConfigs(context.Background(), &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: c.Topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{
				Name: c.Key, Value: c.Value, ConfigOperation: kafka.ConfigOperationSet,
			}},
		}},
	})
	if err != nil {
		return nil, err
	}
	return nil, answer.Resources[0].Error
}

func (k *kafkaGoClient) deleteTopic(c command) (any, error) {
	answer, err := k.client.DeleteTopics(
		context.Background(), &kafka.DeleteTopicsRequest{Topics: []string{c.Topic}})
	if err != nil {
		return nil, err
	}
	return nil, answer.Errors[c.Topic]
}

func (k *kafkaGoClient) groups(command) (any, error) {
	answer, err := k.client.ListGroups(context.Background(), &kafka.ListGroupsRequest{})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, group := range answer.Groups {
		names = append(names, group.GroupID)
	}
	return names, answer.Error
}

func (k *kafkaGoClient) describeGroup(c command) (any, error) {
	answer, err := k.client.DescribeGroups(
		context.Background(), &kafka.DescribeGroupsRequest{GroupIDs: []string{c.Group}})
	if err != nil {
		return nil, err
	}
	group := answer.Groups[0]
	found := described{group.GroupState, map[string][]int32{}}
	for _, member := range group.Members {
		partitions := []int32{}
		for _, one := range member.MemberAssignments.Topics {
			for _, partition := range one.Partitions {
				if one.Topic == c.Topic {
					partitions = append(partitions, int32(partition))
				}
			}
		}
		found.Members[member.MemberID] = partitions
	}
	return found, group.Error
}

// kafka-go asks for the partitions that it is told, and answers −1 where nothing is committed.
func (k *kafkaGoClient) groupOffsets(c command) (any, error) {
	known, err := k.client.Metadata(context.Background(), &kafka.MetadataRequest{Topics: []string{c.Topic}})
	if err != nil {
		return nil, err
	}
	asked := []int{}
	for _, partition := range known.Topics[0].Partitions {
		asked = append(asked, partition.ID)
	}
	answer, err := k.client.OffsetFetch(context.Background(), &kafka.OffsetFetchRequest{
		GroupID: c.Group, Topics: map[string][]int{c.Topic: asked},
	})
	if err != nil {
		return nil, err
	}
	found := map[int]int64{}
	for _, one := range answer.Topics[c.Topic] {
		if one.Error != nil {
			return nil, one.Error
		}
		if one.CommittedOffset >= 0 {
			found[one.Partition] = one.CommittedOffset
		}
	}
	return found, answer.Error
}

func (k *kafkaGoClient) deleteGroup(c command) (any, error) {
	answer, err := k.client.DeleteGroups(
		context.Background(), &kafka.DeleteGroupsRequest{GroupIDs: []string{c.Group}})
	if err != nil {
		return nil, err
	}
	return nil, answer.Errors[c.Group]
}
