package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"log"
	"os"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
)

// A record as it crosses the pipe. Go's JSON writes bytes in base64 and nil as null, which is what the tests want.
type message struct {
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
	Timestamp *int64   `json:"timestamp"`
	Offset    int64    `json:"offset"`
}

// A header crosses the pipe as [name, value].
type header struct {
	name  string
	value []byte
}

func (h *header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.name, &h.value})
}

func (h header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.name, h.value})
}

// A command; each verb has some of the arguments.
type command struct {
	Verb       string            `json:"verb"`
	Topic      string            `json:"topic"`
	Partition  int32             `json:"partition"`
	Messages   []message         `json:"messages"`
	Codec      string            `json:"codec"`
	Offset     int64             `json:"offset"`
	Count      int               `json:"count"`
	Timestamp  int64             `json:"timestamp"`
	Key        string            `json:"key"`
	Value      string            `json:"value"`
	Partitions int32             `json:"partitions"`
	Configs    map[string]string `json:"configs"`
	Total      int32             `json:"total"`
	Before     int64             `json:"before"`
	Group      string            `json:"group"`

	Producer        string   `json:"producer"`
	TransactionalID string   `json:"transactional_id"`
	TimeoutMs       int      `json:"timeout_ms"`
	Values          []string `json:"values"`
	Committed       bool     `json:"committed"`
	Last            string   `json:"last"`
}

// A group as a client describes it: its state, and the partitions of one topic that each member has.
type described struct {
	State   string             `json:"state"`
	Members map[string][]int32 `json:"members"`
}

type verbs map[string]func(command) (any, error)

type failure struct {
	Code    *int   `json:"code"`
	Message string `json:"message"`
}

// Answer each command until the input ends.
func serve(answers verbs) {
	input, output := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked command
		if err := json.Unmarshal(line, &asked); err != nil {
			log.Fatal(err)
		}
		result, err := answers[asked.Verb](asked)
		if err != nil {
			err = output.Encode(map[string]failure{"error": {codeOf(err), err.Error()}})
		} else {
			err = output.Encode(map[string]any{"result": result})
		}
		if err != nil {
			log.Fatal(err)
		}
	}
}

// Kafka's error number, wherever it lies in the error of a library.
func codeOf(err error) *int {
	var bySarama sarama.KError
	var byFranz *kerr.Error
	var byKafkaGo kafka.Error
	code := 0
	switch {
	case errors.As(err, &bySarama):
		code = int(bySarama)
	case errors.As(err, &byFranz):
		code = int(byFranz.Code)
	case errors.As(err, &byKafkaGo):
		code = int(byKafkaGo)
	default:
		return nil
	}
	return &code
}
