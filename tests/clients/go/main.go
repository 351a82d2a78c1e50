// The clients of Go in one program, which the tests of clients drive:
//
//	clients driver LIBRARY BOOTSTRAP                one JSON command a line in, one JSON line out (serve.go)
//	clients transactional LIBRARY BOOTSTRAP         the same for transactions (transactional.go)
//	clients member LIBRARY BOOTSTRAP GROUP TOPIC    a group member, which says what it is given and reads (member.go)
//	clients copier LIBRARY BOOTSTRAP GROUP TOPIC    a member that copies records in transactions (franz_copier.go)
//	clients share LIBRARY BOOTSTRAP GROUP TOPIC     a member of a share group (franz_share_member.go)
//
// LIBRARY is sarama, franz-go or kafka-go.
package main

import (
	"log"
	"os"
)

var drivers = map[string]func(bootstrap string) (verbs, error){
	"sarama":   saramaDriver,
	"franz-go": franzDriver,
	"kafka-go": kafkaGoDriver,
}

var members = map[string]func(bootstrap, group, topic, strategy string) error{
	"sarama":   saramaMember,
	"franz-go": franzMember,
	"kafka-go": kafkaGoMember,
}

func main() {
	log.SetFlags(0)
	arguments := os.Args[1:]
	switch {
	case len(arguments) == 3 && arguments[0] == "driver" && drivers[arguments[1]] != nil:
		answers, err := drivers[arguments[1]](arguments[2])
		if err != nil {
			log.Fatal(err)
		}
		serve(answers)
	case len(arguments) == 3 && arguments[0] == "transactional" && transactional[arguments[1]] != nil:
		serve(transactional[arguments[1]](arguments[2]))
	case len(arguments) == 5 && arguments[0] == "member" && members[arguments[1]] != nil:
		if err := members[arguments[1]](arguments[2], arguments[3], arguments[4], strategy()); err != nil {
			log.Fatal(err)
		}
	case len(arguments) == 5 && arguments[0] == "copier" && arguments[1] == "franz-go":
		if err := franzCopier(arguments[2], arguments[3], arguments[4]); err != nil {
			log.Fatal(err)
		}
	case len(arguments) == 5 && arguments[0] == "share" && arguments[1] == "franz-go":
		if err := franzShareMember(arguments[2], arguments[3], arguments[4]); err != nil {
			log.Fatal(err)
		}
	default:
		log.Fatal("usage: clients driver|transactional LIBRARY BOOTSTRAP | clients member|copier|share LIBRARY BOOTSTRAP GROUP TOPIC")
	}
}

// The assignor by Kafka's name; round robin, as all other members of the tests have it, unless told otherwise.
func strategy() string {
	if name := os.Getenv("STRATEGY"); name != "" {
		return name
	}
	return "roundrobin"
}
