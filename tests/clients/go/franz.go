package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franzClient struct {
	bootstrap string
	client    *kgo.Client
	admin     *kadm.Client
	producers map[string]*kgo.Client
}

func franzDriver(bootstrap string) (verbs, error) {
	client, err := kgo.NewClient(franzOptions(bootstrap)...)
	if err != nil {
		return nil, err
	}
	f := &franzClient{bootstrap, client, kadm.NewClient(client), map[string]*kgo.Client{}}
	return verbs{
		"write": f.write, "read": f.read, "choose": f.choose, "offset_for_time": f.offsetForTime, "bounds": f.bounds,
		"create_topic": f.createTopic, "topics": f.topics, "add_partitions": f.addPartitions, "configs": f.configs,
		"set_config": f.setConfig, "delete_records": f.deleteRecords, "delete_topic": f.deleteTopic,
		"groups": f.groups, "describe_group": f.describeGroup, "group_offsets": f.groupOffsets,
		"delete_group": f.deleteGroup,
	}, nil
}

func franzOptions(bootstrap string, more ...kgo.Opt) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ClientID("franz-go"), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond),
	}
	return append(append(options, franzLogin()...), more...)
}

var franzCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// A codec and a partitioner are settings of a client, so each pair has one; all are idempotent, which is the default.
func (f *franzClient) producer(codec string, partitioner kgo.Partitioner, name string) (*kgo.Client, error) {
	name += codec
	if f.producers[name] == nil {
		made, err := kgo.NewClient(franzOptions(
			f.bootstrap, kgo.ProducerBatchCompression(franzCodecs[codec]), kgo.RecordPartitioner(partitioner),
			kgo.AllowAutoTopicCreation(),
		)...)
		if err != nil {
			return nil, err
		}
		f.producers[name] = made
	}
	return f.producers[name], nil
}

func (f *franzClient) write(c command) (any, error) {
	producer, err := f.producer(c.Codec, kgo.ManualPartitioner(), "manual ")
	if err != nil {
		return nil, err
	}
	batch := make([]*kgo.Record, len(c.Messages))
	for i, m := range c.Messages {
		batch[i] = &kgo.Record{Topic: c.Topic, Partition: c.Partition, Key: m.Key, Value: m.Value}
		if m.Timestamp != nil {
			batch[i].Timestamp = time.UnixMilli(*m.Timestamp)
		}
		for _, h := range m.Headers {
			batch[i].Headers = append(batch[i].Headers, kgo.RecordHeader{Key: h.name, Value: h.value})
		}
	}
	return nil, producer.ProduceSync(context.Background(), batch...).FirstErr()
}

func (f *franzClient) choose(c command) (any, error) {
	producer, err := f.producer("none", kgo.StickyKeyPartitioner(nil), "murmur2 ")
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(c.Key)
	if err != nil {
		return nil, err
	}
	sent, err := producer.ProduceSync(context.Background(), &kgo.Record{Topic: c.Topic, Key: key}).First()
	if err != nil {
		return nil, err
	}
	return sent.Partition, nil
}

func (f *franzClient) read(c command) (any, error) {
	from := map[string]map[int32]kgo.Offset{c.Topic: {c.Partition: kgo.NewOffset().At(c.Offset)}}
	reader, err := kgo.NewClient(franzOptions(
		f.bootstrap, kgo.ConsumePartitions(from), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	)...)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	found := []message{}
	for len(found) < c.Count {
		fetched := reader.PollRecords(context.Background(), c.Count-len(found))
		if err := fetched.Err(); err != nil {
			return nil, err
		}
		for _, r := range fetched.Records() {
			at := r.Timestamp.UnixMilli()
			headers := []header{}
			for _, h := range r.Headers {
				headers = append(headers, header{h.Key, h.Value})
			}
			found = append(found, message{r.Key, r.Value, headers, &at, r.Offset})
		}
	}
	return found, nil
}

// The answer for one partition out of those for all of a topic.
func franzListed(c command, listed kadm.ListedOffsets, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	one, present := listed.Lookup(c.Topic, c.Partition)
	if !present {
		return 0, fmt.Errorf("no answer for partition %d", c.Partition)
	}
	return one.Offset, one.Err
}

func (f *franzClient) offsetForTime(c command) (any, error) {
	listed, err := f.admin.ListOffsetsAfterMilli(context.Background(), c.Timestamp, c.Topic)
	if err != nil {
		return nil, err
	}
	// kadm answers the end where nothing is young enough; the timestamp tells the two apart.
	if one, present := listed.Lookup(c.Topic, c.Partition); present && one.Err == nil && one.Timestamp < 0 {
		return -1, nil
	}
	return franzListed(c, listed, err)
}

func (f *franzClient) bounds(c command) (any, error) {
	listed, err := f.admin.ListStartOffsets(context.Background(), c.Topic)
	low, err := franzListed(c, listed, err)
	if err != nil {
		return nil, err
	}
	listed, err = f.admin.ListEndOffsets(context.Background(), c.Topic)
	high, err := franzListed(c, listed, err)
	return []int64{low, high}, err
}

func (f *franzClient) createTopic(c command) (any, error) {
	configs := map[string]*string{}
	for name, value := range c.Configs {
		configs[name] = &value
	}
	_, err := f.admin.CreateTopic(context.Background(), c.Partitions, 1, configs, c.Topic)
	return nil, err
}

func (f *franzClient) topics(command) (any, error) {
	listed, err := f.admin.ListTopics(context.Background())
	found := map[string]int{}
	for name, detail := range listed {
		found[name] = len(detail.Partitions)
	}
	return found, err
}

func (f *franzClient) addPartitions(c command) (any, error) {
	answers, err := f.admin.UpdatePartitions(context.Background(), int(c.Total), c.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answers.Error()
}

func (f *franzClient) configs(c command) (any, error) {
	resources, err := f.admin.DescribeTopicConfigs(context.Background(), c.Topic)
	if err != nil {
		return nil, err
	}
	found := map[string]*string{}
	for _, entry := range resources[0].Configs {
		found[entry.Key] = entry.Value
	}
	return found, resources[0].Err
}

func (f *franzClient) setConfig(c command) (any, error) {
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: c.Key, Value: &c.Value}}
	answers, err := f.admin.AlterTopicConfigs(context.Background(), change, c.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answers[0].Err
}

func (f *franzClient) deleteRecords(c command) (any, error) {
	before := kadm.Offsets{}
	before.AddOffset(c.Topic, c.Partition, c.Before, -1)
	answers, err := f.admin.DeleteRecords(context.Background(), before)
	if err != nil {
		return nil, err
	}
	return nil, answers.Error()
}

func (f *franzClient) deleteTopic(c command) (any, error) {
	_, err := f.admin.DeleteTopic(context.Background(), c.Topic)
	return nil, err
}

func (f *franzClient) groups(command) (any, error) {
	listed, err := f.admin.ListGroups(context.Background())
	return append([]string{}, listed.Groups()...), err
}

func (f *franzClient) describeGroup(c command) (any, error) {
	groups, err := f.admin.DescribeGroups(context.Background(), c.Group)
	if err != nil {
		return nil, err
	}
	group := groups[c.Group]
	found := described{group.State, map[string][]int32{}}
	for _, member := range group.Members {
		found.Members[member.MemberID] = []int32{}
		assignment, _ := member.Assigned.AsConsumer()
		for _, one := range assignment.Topics {
			if one.Topic == c.Topic {
				found.Members[member.MemberID] = one.Partitions
			}
		}
	}
	return found, group.Err
}

func (f *franzClient) groupOffsets(c command) (any, error) {
	answers, err := f.admin.FetchOffsets(context.Background(), c.Group)
	found := map[int32]int64{}
	for partition, one := range answers[c.Topic] {
		found[partition] = one.At
	}
	return found, err
}

func (f *franzClient) deleteGroup(c command) (any, error) {
	_, err := f.admin.DeleteGroup(context.Background(), c.Group)
	return nil, err
}
