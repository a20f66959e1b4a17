package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/watch"
	"github.com/spillgate/spillgate/policyfile"
)

// certificates returns how connections are encrypted, nil if they are not. Until
// stop is called the files are watched: what is renewed is used from the next
// connection on.
func certificates(ctx context.Context, t policyfile.TLS, logger *slog.Logger) (config *tls.Config, stop func(), err error) {
	if t == (policyfile.TLS{}) {
		return nil, func() {}, nil
	}
	names := []string{t.CertificateFile, t.KeyFile}
	if t.ClientCAFile != "" {
		names = append(names, t.ClientCAFile)
	}
	files := watch.New(names...) // before they are read, so that no change is missed
	var current atomic.Pointer[tls.Config]
	read := func() error {
		c, err := encryption(t)
		if err == nil {
			current.Store(c)
		}
		return err
	}
	if err := read(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		files.Run(ctx, lookEvery, func() {
			if err := read(); err != nil {
				logger.Error("the certificate is broken or gone, or its key is another's: the last good one holds", "error", err)
				return
			}
			logger.Info("certificate read anew", "until", current.Load().Certificates[0].Leaf.NotAfter)
		})
	}()
	config = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.Load(), nil }}
	return config, func() { cancel(); <-ended }, nil
}

// encryption reads the files that t names.
func encryption(t policyfile.TLS) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.CertificateFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls: certificate_file %s, key_file %s: %w", t.CertificateFile, t.KeyFile, err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	if t.ClientCAFile == "" {
		return c, nil
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven
	if c.ClientCAs, err = authorities("client_ca_file", t.ClientCAFile); err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return c, nil
}

// authorities reads the certificates of those who sign others, from the file that
// a key of the policy file names.
func authorities(key, file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s %s: no certificate in it; want some in PEM", key, file)
	}
	return pool, nil
}

// tlsText says for people what the file says of TLS.
func tlsText(s *policyfile.Server) []string {
	t := s.TLS
	switch {
	case s.H2C:
		return []string{"no TLS; HTTP/1.1, and HTTP/2 with those who begin with it (h2c)"}
	case t == (policyfile.TLS{}):
		return nil
	}
	text := fmt.Sprintf("TLS: certificate %s, key %s; HTTP/1.1 and HTTP/2", t.CertificateFile, t.KeyFile)
	if t.ClientCAFile != "" {
		text += "; clients may have certificates that are signed by those of " + t.ClientCAFile
	}
	return []string{text}
}

// checkedTLS is what `check --json` prints of it.
type checkedTLS struct {
	CertificateFile string `json:"certificate_file"`
	KeyFile         string `json:"key_file"`
	ClientCAFile    string `json:"client_ca_file,omitempty"`
}

func tlsJSON(t policyfile.TLS) *checkedTLS {
	if t == (policyfile.TLS{}) {
		return nil
	}
	return &checkedTLS{t.CertificateFile, t.KeyFile, t.ClientCAFile}
}
