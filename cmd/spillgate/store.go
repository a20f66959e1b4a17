package main

import (
	"context"
	"crypto/sha256"
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

// seedWait is how long a start waits for the seed that the store keeps.
const seedWait = 5 * time.Second

// openStore opens the store that several gateways share: what it decides by,
// what the engine has to know of it, and what closes it.
func openStore(ctx context.Context, c *policyfile.Store, logger *slog.Logger) (spillgate.Store, []policy.EngineOption, func(), error) {
	redis.SetLogger(&redisLog{logger: logger})
	client, err := redisClient(c)
	if err != nil {
		return nil, nil, nil, err
	}
	var shared *redisstore.Store // made before anything is told of it
	opts := []redisstore.Option{redisstore.Watch(func(server string, open bool, why redisstore.Fault) {
		if open {
			logger.Error("the store does not answer: rules decide as their on_fault says", "server", server, "fault", why.String())
		} else {
			logger.Info("the store answers again", "server", server)
			logStore(logger, shared)
		}
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
		return nil, nil, nil, errors.Join(err, client.Close())
	}
	stop := func() { _, _ = shared.Close(), client.Close() } // neither fails
	seed, err := sharedSeed(ctx, c, shared)
	if err != nil {
		stop()
		return nil, nil, nil, err
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
		return nil, nil, nil, err
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
		logLeases(logger, leased)
		if err := leased.Close(); err != nil {
			logger.Warn("not all units of leases could be given back", "error", err, "units_forfeited", leased.Stats().Forfeited)
		}
		stop()
		logStore(logger, shared)
	}, nil
}

// sharedSeed returns the secret that all gateways have in common.
func sharedSeed(ctx context.Context, c *policyfile.Store, shared *redisstore.Store) (spillgate.Seed, error) {
	if c.SeedFile == "" {
		ctx, cancel := context.WithTimeout(ctx, seedWait)
		defer cancel()
		seed, err := shared.Seed(ctx)
		if err != nil {
			return seed, fmt.Errorf("%w; to start while the store is away, give all gateways one seed_file", err)
		}
		return seed, nil
	}
	secret, err := os.ReadFile(c.SeedFile)
	if err != nil {
		return spillgate.Seed{}, fmt.Errorf("seed_file: %w", err)
	}
	if len(secret) < 16 {
		return spillgate.Seed{}, fmt.Errorf("seed_file: %s has %d bytes: want 16 or more that nobody can guess, as of: head -c 32 /dev/urandom", c.SeedFile, len(secret))
	}
	sum := sha256.Sum256(secret)
	return spillgate.SeedFrom([16]byte(sum[:16])), nil
}

// redisClient makes the client that the file asks for.
func redisClient(c *policyfile.Store) (redis.UniversalClient, error) {
	password := ""
	if c.PasswordFile != "" {
		text, err := os.ReadFile(c.PasswordFile)
		if err != nil {
			var path *fs.PathError
			if errors.As(err, &path) {
				err = fmt.Errorf("%s: %w", path.Path, path.Err)
			}
			return nil, fmt.Errorf("password_file: %w", err)
		}
		password = strings.TrimRight(string(text), "\r\n")
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
		Username: first.Username, Password: password, TLSConfig: first.TLSConfig,
		DialTimeout: time.Second, ReadTimeout: budget, WriteTimeout: budget, ContextTimeoutEnabled: true,
		MaxRetries: -1, ClientName: "spillgate-" + strconv.Itoa(os.Getpid()),
	}
	return redis.NewUniversalClient(o), nil
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
	if c.SeedFile != "" {
		line += "; the seed is in " + c.SeedFile
	}
	return []string{"store: " + s.Store.Text(), line}
}

// checkedStore is what `check --json` prints of it.
type checkedStore struct {
	Redis    []string `json:"redis"`
	Sentinel string   `json:"sentinel,omitempty"`
	Cluster  bool     `json:"cluster,omitempty"`
	Mode     string   `json:"mode"`
	Nodes    int      `json:"nodes"`
	Prefix   string   `json:"prefix"`
	Timeout  float64  `json:"timeout_seconds"`
	Share    float64  `json:"share_percent,omitempty"` // of leases

	PasswordFile string `json:"password_file,omitempty"`
	SeedFile     string `json:"seed_file,omitempty"`

	Leases []checkedLease `json:"leases,omitempty"`
}

func storeJSON(s *policyfile.Server) *checkedStore {
	c := &s.Store
	if !c.Shared() {
		return nil
	}
	out := &checkedStore{Redis: c.Redis, Sentinel: c.Sentinel, Cluster: c.Cluster, Mode: "exact", Nodes: c.Nodes,
		Prefix: redisstore.DefaultPrefix, Timeout: redisstore.DefaultBudget.Seconds(), PasswordFile: c.PasswordFile, SeedFile: c.SeedFile}
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
