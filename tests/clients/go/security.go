package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xdg "github.com/xdg-go/scram"
)

// How to log in over TLS (SASL_SSL), from the environment: SSL_CAFILE, SASL_MECHANISM, SASL_USER, SASL_PASSWORD.
// Without SSL_CAFILE there is neither TLS nor a login. kafka-go has none in any case.
type login struct {
	tls                       *tls.Config
	mechanism, user, password string
}

func loginOf() *login {
	file := os.Getenv("SSL_CAFILE")
	if file == "" {
		return nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		log.Fatalf("%s holds no certificate", file)
	}
	return &login{
		&tls.Config{RootCAs: roots}, os.Getenv("SASL_MECHANISM"), os.Getenv("SASL_USER"), os.Getenv("SASL_PASSWORD"),
	}
}

func franzLogin() []kgo.Opt {
	l := loginOf()
	if l == nil {
		return nil
	}
	mechanism := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: l.user, Pass: l.password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: l.user, Pass: l.password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: l.user, Pass: l.password}.AsSha512Mechanism(),
	}[l.mechanism]
	return []kgo.Opt{kgo.DialTLSConfig(l.tls), kgo.SASL(mechanism)}
}

func saramaLogin(config *sarama.Config) {
	l := loginOf()
	if l == nil {
		return
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = true, l.tls
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(l.mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = l.user, l.password
	hash := map[string]xdg.HashGeneratorFcn{"SCRAM-SHA-256": xdg.SHA256, "SCRAM-SHA-512": xdg.SHA512}[l.mechanism]
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &saramaScram{hash: hash} }
}

// What sarama asks for: it has no SCRAM of its own.
type saramaScram struct {
	hash         xdg.HashGeneratorFcn
	conversation *xdg.ClientConversation
}

func (s *saramaScram) Begin(user, password, authzID string) error {
	client, err := s.hash.NewClient(user, password, authzID)
	if err != nil {
		return fmt.Errorf("scram: %w", err)
	}
	s.conversation = client.NewConversation()
	return nil
}

func (s *saramaScram) Step(challenge string) (string, error) { return s.conversation.Step(challenge) }

func (s *saramaScram) Done() bool { return s.conversation.Done() }
