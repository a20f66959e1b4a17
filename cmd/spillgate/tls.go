package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/watch"
	"github.com/spillgate/spillgate/policyfile"
)

// certificates returns how connections are encrypted, nil if they are not. Until
// stop is called the files are watched: a certificate that is renewed is used
// from the next connection on.
func certificates(ctx context.Context, t policyfile.TLS, logger *slog.Logger) (config *tls.Config, stop func(), err error) {
	if t == (policyfile.TLS{}) {
		return nil, func() {}, nil
	}
	files := watch.New(t.CertificateFile, t.KeyFile) // before they are read, so that no change is missed
	var current atomic.Pointer[tls.Certificate]
	read := func() error {
		c, err := tls.LoadX509KeyPair(t.CertificateFile, t.KeyFile)
		if err != nil {
			return fmt.Errorf("tls: certificate_file %s, key_file %s: %w", t.CertificateFile, t.KeyFile, err)
		}
		current.Store(&c)
		return nil
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
			logger.Info("certificate read anew", "until", current.Load().Leaf.NotAfter)
		})
	}()
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil }},
		func() { cancel(); <-ended }, nil
}

// tlsText says for people what the file says of TLS.
func tlsText(t policyfile.TLS) []string {
	if t == (policyfile.TLS{}) {
		return nil
	}
	return []string{fmt.Sprintf("TLS: certificate %s, key %s; HTTP/1.1 and HTTP/2", t.CertificateFile, t.KeyFile)}
}

// checkedTLS is what `check --json` prints of it.
type checkedTLS struct {
	CertificateFile string `json:"certificate_file"`
	KeyFile         string `json:"key_file"`
}

func tlsJSON(t policyfile.TLS) *checkedTLS {
	if t == (policyfile.TLS{}) {
		return nil
	}
	return &checkedTLS{t.CertificateFile, t.KeyFile}
}
