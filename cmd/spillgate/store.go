package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
	"github.com/spillgate/spillgate/redisstore"
)

// seedWait is how long a start asks for the seed that the store keeps, once every
// seedEvery.
const (
	seedWait  = 5 * time.Second
	seedEvery = 100 * time.Millisecond
)

// openStore opens the store that several gateways share: what it decides by,
// what the engine has to know of it, and what closes it. The error has an exit code.
func openStore(ctx context.Context, c *policyfile.Store, logger *slog.Logger) (spillgate.Store, []policy.EngineOption, func(), error) {
	redis.SetLogger(&redisLog{logger: logger})
	own, err := ownSeed(c.SeedFile)
	if err != nil {
		return nil, nil, nil, &exitError{exitUsage, err}
	}
	client, err := redisClient(c)
	if err != nil {
		return nil, nil, nil, &exitError{exitUsage, err}
	}
	var shared *redisstore.Store // made before anything is told of it
	told := outages{logger: logger, again: func() { logStore(logger, shared) }}
	opts := []redisstore.Option{redisstore.Watch(told.watch), redisstore.OtherSeed(func() {
		logger.Error("the store keeps another seed than this gateway has: it lost its data, and another gateway started before the seed was put back; the two count apart until one of them is started again (a seed_file for all prevents it)")
	})}
	if c.Prefix != "" {
		opts = append(opts, redisstore.Prefix(c.Prefix))
	} else {
		logger.Warn("the store has no prefix: another service on the same server counts together with this one where a rule has the same name; give each service its own (server.store.prefix)")
	}
	if c.Timeout > 0 {
		opts = append(opts, redisstore.Budget(c.Timeout))
	}
	if shared, err = redisstore.New(client, opts...); err != nil {
		return nil, nil, nil, &exitError{exitRunning, errors.Join(err, client.Close())}
	}
	stop := func() { _, _ = shared.Close(), client.Close() } // neither fails
	seed, err := sharedSeed(ctx, own, shared)
	if err != nil {
		stop()
		return nil, nil, nil, &exitError{exitRunning, err}
	}
	engine := []policy.EngineOption{policy.Seeded(seed), policy.Nodes(c.Nodes)}
	if !c.Leased {
		quiet := tellingTrouble(func() trouble { return troubleOf(shared.Stats(), nil) }, func() { logStore(logger, shared) })
		return shared, engine, func() {
			quiet()
			stop()
			logStore(logger, shared)
		}, nil
	}
	leased, err := spillgate.NewLeased(shared, leaseOptions(c))
	if err != nil {
		stop()
		return nil, nil, nil, &exitError{exitRunning, err}
	}
	quiet := tellingTrouble(func() trouble {
		st := leased.Stats()
		return troubleOf(shared.Stats(), &st)
	}, func() {
		logLeases(logger, leased)
		logStore(logger, shared)
	})
	return leased, engine, func() {
		quiet()
		dropped := shared.Stats().Dropped
		err := leased.Close()
		stop() // what waits for a store that does not answer then is dropped
		if dropped = shared.Stats().Dropped - dropped; err != nil || dropped > 0 {
			logger.Warn("not all units of leases could be given back", "error", err, "units_forfeited", leased.Stats().Forfeited, "corrections_dropped", dropped)
		}
		logLeases(logger, leased)
		logStore(logger, shared)
	}, nil
}

// sharedSeed returns the secret that all gateways have in common: that of their own
// seed_file, else the one that the store keeps.
func sharedSeed(ctx context.Context, own *spillgate.Seed, shared *redisstore.Store) (spillgate.Seed, error) {
	if own != nil {
		return *own, nil
	}
	ctx, cancel := context.WithTimeout(ctx, seedWait)
	defer cancel()
	var why error
	for {
		seed, err := shared.Seed(ctx)
		if err == nil {
			return seed, nil
		}
		if why == nil || ctx.Err() == nil { // the end of the time says nothing of the store
			why = err
		}
		if ctx.Err() != nil || !errors.Is(err, spillgate.ErrUnavailable) {
			return seed, fmt.Errorf("%w; to start while the store is away, give all gateways one seed_file", why)
		}
		select {
		case <-time.After(seedEvery):
		case <-ctx.Done():
		}
	}
}

// ownSeed reads the seed_file, nil if there is none.
func ownSeed(file string) (*spillgate.Seed, error) {
	if file == "" {
		return nil, nil
	}
	secret, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("seed_file: %w", err)
	}
	if len(secret) < 16 {
		return nil, fmt.Errorf("seed_file: %s has %d bytes: want 16 or more that nobody can guess, as of: head -c 32 /dev/urandom", file, len(secret))
	}
	sum := sha256.Sum256(secret)
	seed := spillgate.SeedFrom([16]byte(sum[:16]))
	return &seed, nil
}

// redisClient makes the client that the file asks for. Of servers by their URLs
// the first says for all how they are spoken to.
func redisClient(c *policyfile.Store) (redis.UniversalClient, error) {
	password, err := passwordIn("password_file", c.PasswordFile)
	if err != nil {
		return nil, err
	}
	sentinel, err := passwordIn("sentinel_password_file", c.SentinelPasswordFile)
	if err != nil {
		return nil, err
	}
	encrypted, err := storeTLS(c)
	if err != nil {
		return nil, err
	}
	first, err := redis.ParseURL(c.Redis[0])
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	var addrs []string
	for _, text := range c.Redis {
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("redis: %w", err)
		}
		addrs = append(addrs, u.Host)
	}
	budget := c.Timeout
	if budget == 0 {
		budget = redisstore.DefaultBudget
	}
	o := &redis.UniversalOptions{
		Addrs: addrs, MasterName: c.Sentinel, IsClusterMode: c.Cluster, DB: first.DB,
		Username: first.Username, Password: password, SentinelUsername: c.SentinelUser, SentinelPassword: sentinel, TLSConfig: encrypted,
		DialTimeout: time.Second, ReadTimeout: budget, WriteTimeout: budget, ContextTimeoutEnabled: true,
		MaxRetries: -1, DialerRetries: 1, // else a refused connection is one that takes too long
		ClientName: "spillgate-" + strconv.Itoa(os.Getpid()),
	}
	return redis.NewUniversalClient(o), nil
}

// passwordIn returns what a file holds, but for the end of its line.
func passwordIn(key, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = fmt.Errorf("%s: %w", path.Path, path.Err)
		}
		return "", fmt.Errorf("%s: %w", key, err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// storeTLS returns how the servers are spoken to, nil if without TLS. It names no
// server, so that each is held to its own name. The certificate is read for each
// connection, so that one that was renewed is shown.
func storeTLS(c *policyfile.Store) (*tls.Config, error) {
	if !c.TLS() {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		var err error
		if config.RootCAs, err = authorities("ca_file", c.CAFile); err != nil {
			return nil, err
		}
	}
	if c.CertificateFile != "" {
		load := func() (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(c.CertificateFile, c.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("certificate_file %s, key_file %s: %w", c.CertificateFile, c.KeyFile, err)
			}
			return &cert, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return config, nil
}

// storeText says for people where what is counted is kept.
func storeText(s *policyfile.Server) []string {
	if !s.Store.Shared() {
		return nil
	}
	c := storeJSON(s)
	line := fmt.Sprintf("  answers within %s; keys begin with %s", time.Duration(c.Timeout*float64(time.Second)), c.Prefix)
	if c.PasswordFile != "" {
		line += "; the password is in " + c.PasswordFile
	}
	if c.SentinelPasswordFile != "" {
		whose := "the Sentinels"
		if c.SentinelUser != "" {
			whose = "the Sentinels' user " + c.SentinelUser
		}
		line += fmt.Sprintf("; that of %s is in %s", whose, c.SentinelPasswordFile)
	}
	if c.SeedFile != "" {
		line += "; the seed is in " + c.SeedFile
	}
	lines := []string{"store: " + s.Store.Text(), line}
	if s.Store.TLS() {
		by := "those whom the system trusts"
		if c.CAFile != "" {
			by = "those in " + c.CAFile
		}
		line := "  TLS: servers have certificates signed by " + by
		if c.CertificateFile != "" {
			line += fmt.Sprintf("; shown is %s, key %s", c.CertificateFile, c.KeyFile)
		}
		lines = append(lines, line)
	}
	return lines
}

// checkedStore is what `check --json` prints of it.
type checkedStore struct {
	Redis    []string `json:"redis"`
	Sentinel string   `json:"sentinel,omitempty"`
	Cluster  bool     `json:"cluster,omitempty"`
	Mode     string   `json:"mode"`
	Nodes    int      `json:"nodes,omitempty"` // 0: they count each other
	Counted  bool     `json:"nodes_counted"`
	Prefix   string   `json:"prefix"`
	Timeout  float64  `json:"timeout_seconds"`
	Share    float64  `json:"share_percent,omitempty"` // of leases

	PasswordFile         string `json:"password_file,omitempty"`
	SentinelUser         string `json:"sentinel_user,omitempty"`
	SentinelPasswordFile string `json:"sentinel_password_file,omitempty"`
	CAFile               string `json:"ca_file,omitempty"`
	CertificateFile      string `json:"certificate_file,omitempty"`
	KeyFile              string `json:"key_file,omitempty"`
	SeedFile             string `json:"seed_file,omitempty"`

	Leases []checkedLease `json:"leases,omitempty"`
	Local  []checkedLocal `json:"local,omitempty"`
}

func storeJSON(s *policyfile.Server) *checkedStore {
	c := &s.Store
	if !c.Shared() {
		return nil
	}
	out := &checkedStore{Redis: c.Redis, Sentinel: c.Sentinel, Cluster: c.Cluster, Mode: "exact", Nodes: c.Nodes, Counted: c.Nodes == 0,
		Prefix: redisstore.DefaultPrefix, Timeout: redisstore.DefaultBudget.Seconds(),
		PasswordFile: c.PasswordFile, SentinelUser: c.SentinelUser, SentinelPasswordFile: c.SentinelPasswordFile,
		CAFile: c.CAFile, CertificateFile: c.CertificateFile, KeyFile: c.KeyFile, SeedFile: c.SeedFile}
	if c.Leased {
		out.Mode, out.Share = "leased", float64(c.Share)
		if c.Share == 0 {
			out.Share = 100 * spillgate.DefaultLeaseShare
		}
	}
	if c.Prefix != "" {
		out.Prefix = c.Prefix
	}
	if c.Timeout > 0 {
		out.Timeout = c.Timeout.Seconds()
	}
	return out
}
