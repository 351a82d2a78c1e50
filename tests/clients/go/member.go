package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// What every member of the tests has.
const (
	sessionTimeout    = 3 * time.Second
	heartbeatInterval = 300 * time.Millisecond
	fetchWait         = 50 * time.Millisecond
)

var speaking sync.Mutex

// Say one event in one line: {"assigned": [partition, …]}, {"read": [partition, offset, value]},
// {"committed": {partition: next offset}} or {"refused": why}.
func say(event string, what any) {
	line, err := json.Marshal(map[string]any{event: what})
	if err != nil {
		log.Fatal(err)
	}
	speaking.Lock()
	defer speaking.Unlock()
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		log.Fatal(err)
	}
}

// A context that ends with SIGTERM, by which a test asks a member to leave.
func untilAskedToLeave() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGTERM)
}
