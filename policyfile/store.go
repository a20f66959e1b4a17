package policyfile

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
	"go.yaml.in/yaml/v4"
)

// A Store says where several gateways keep what they count together. Its zero
// value is the memory of the process.
type Store struct {
	// Redis are the URLs of the servers, redis:// or rediss:// (TLS), with a
	// user but no password; none is the memory of the process. But for the
	// host all are alike.
	Redis []string
	// Sentinel is the name of the primary that the servers, which then are
	// Sentinels, watch; "" if they are none.
	Sentinel string
	// Cluster says that the servers are some of a cluster.
	Cluster bool
	// PasswordFile holds the password; "" if there is none.
	PasswordFile string
	// SentinelUser is the user of the Sentinels, where that is not their default one.
	SentinelUser string
	// SentinelPasswordFile holds the password of the Sentinels; "" if they have none.
	SentinelPasswordFile string
	// CAFile holds the certificates of those who sign the servers' certificates,
	// in PEM; "" for those that the system trusts.
	CAFile string
	// CertificateFile and KeyFile hold the certificate that is shown to the
	// servers, with those that lead to its root, and its private key, in PEM; ""
	// if none is.
	CertificateFile, KeyFile string
	// Prefix begins every key; "" is the store's own.
	Prefix string
	// Nodes is how many gateways share the store; 0 if they are to count each other.
	Nodes int
	// Timeout is how long a call may take; 0 is the store's own.
	Timeout time.Duration
	// Leased says that keys in demand take blocks of units.
	Leased bool
	// Share is how much of a limit, in percent, all nodes may hold in blocks; 0
	// is the default.
	Share int
	// SeedFile holds the secret under which keys are digested; "" if the store
	// is to keep one.
	SeedFile string
}

// Shared reports whether there is a store.
func (s *Store) Shared() bool { return len(s.Redis) > 0 }

const maxNodes = 10_000

var storeField = field[Server]{
	key: "store", about: "Where several gateways keep together what they count: Redis. Left out, each counts in its own memory.",
	schema: schema{"$ref": "#/$defs/store"},
	read:   func(d *decoder, n *yaml.Node, s *Server) { readStore(d, n, s) },
}

var storeForm = form[Store]{
	what:    "the store part",
	example: "store: {redis: redis://127.0.0.1:6379}",
	main:    "redis",
	also: map[string]string{"url": "redis", "address": "redis", "addr": "redis", "valkey": "redis", "master": "sentinel", "replicas": "nodes",
		"budget": "timeout", "password": "password_file", "sentinel_password": "sentinel_password_file", "sentinel_username": "sentinel_user", "seed": "seed_file",
		"ca": "ca_file", "cert_file": "certificate_file", "certificate": "certificate_file", "key": "key_file"},
	fields: []field[Store]{
		in("redis", "The servers: redis://HOST:PORT, or rediss:// for TLS. Several are Sentinels, or some of a cluster.", needed(redisURL),
			func(s *Store, v []string) { s.Redis = v }),
		in("sentinel", "The name of the primary: the servers are Sentinels that watch it.", word,
			func(s *Store, v string) { s.Sentinel = v }),
		in("cluster", "The servers are some of a cluster, which names the others.", truth,
			func(s *Store, v bool) { s.Cluster = v }),
		in("password_file", "The file that holds the password.", filePath,
			func(s *Store, v string) { s.PasswordFile = v }),
		in("sentinel_user", "The user of the Sentinels, where they have users; needs sentinel_password_file.", word,
			func(s *Store, v string) { s.SentinelUser = v }),
		in("sentinel_password_file", "The file that holds the password of the Sentinels, if they have one.", filePath,
			func(s *Store, v string) { s.SentinelPasswordFile = v }),
		in("ca_file", "The file with the certificates of those who sign the servers' certificates, in PEM. Left out, those that the system trusts.", filePath,
			func(s *Store, v string) { s.CAFile = v }),
		in("certificate_file", "The file with the certificate that is shown to the servers, and with those that lead to its root, in PEM.", filePath,
			func(s *Store, v string) { s.CertificateFile = v }),
		in("key_file", "The file with the private key of the certificate, in PEM.", filePath,
			func(s *Store, v string) { s.KeyFile = v }),
		in("prefix", "Begins every key. In braces, as in {shop}, it keeps all keys in one slot of a cluster.", word,
			func(s *Store, v string) { s.Prefix = v }),
		in("nodes", "How many gateways share the store: while it fails, a rule with on_fault local counts by its part of the limit. Left out, they count each other.", whole(1, maxNodes),
			func(s *Store, v int64) { s.Nodes = int(v) }),
		in("timeout", "How long a call may take, 1ms to 10s; 20ms if left out.", durationIn(timeSpan{time.Millisecond, 10 * time.Second, "20ms", ""}),
			func(s *Store, v time.Duration) { s.Timeout = v }),
		in("mode", "exact asks for every request; leased takes blocks for keys in demand.", oneOf(choice[bool]{"exact", false}, choice[bool]{"leased", true}),
			func(s *Store, v bool) { s.Leased = v }),
		in("share", "Of mode leased: how much of a limit all nodes together may hold in blocks; 5% if left out.", percentage,
			func(s *Store, v int) { s.Share = v }),
		in("seed_file", "The file with the secret under which keys are digested, 16 bytes or more, the same for all gateways. Left out, the store keeps one.", filePath,
			func(s *Store, v string) { s.SeedFile = v }),
	},
}

func readStore(d *decoder, n *yaml.Node, into *Server) {
	var s Store
	m, ok := storeForm.read(d, n, &s)
	if !ok || m.strange {
		return
	}
	for _, bad := range m.bad {
		if bad {
			return
		}
	}
	before := len(d.errs)
	switch { // the servers
	case len(s.Redis) == 0:
		d.fail(m.node, "add redis: redis://127.0.0.1:6379", "no server is named")
	case s.Sentinel != "" && s.Cluster:
		d.fail(m.at("cluster"), "remove one of the two", "cluster: Sentinel watches a single primary, no cluster")
	case len(s.Redis) > 1 && s.Sentinel == "" && !s.Cluster:
		d.fail(m.at("redis"), "add cluster: true, or sentinel: NAME", "redis: several servers that are neither Sentinels nor a cluster")
	case s.Cluster && database(s.Redis) != "":
		d.fail(m.at("redis"), "leave the number out", "redis: a cluster has no database %s", database(s.Redis))
	case unlike(s.Redis) > 0:
		i := unlike(s.Redis)
		d.fail(entry(m.at("redis"), i), "write all like the first: the scheme, the user and the database are those of all servers", "redis: %s and %s differ in more than the host", s.Redis[i], s.Redis[0])
	}
	switch { // what Sentinels are told
	case s.SentinelPasswordFile != "" && s.Sentinel == "":
		d.fail(m.at("sentinel_password_file"), "write password_file, or add sentinel: NAME", "sentinel_password_file: the servers are no Sentinels")
	case s.SentinelUser != "" && s.SentinelPasswordFile == "":
		d.fail(m.at("sentinel_user"), "add sentinel_password_file: /etc/spillgate/sentinel-password", "sentinel_user: a user has a password")
	}
	switch { // certificates
	case s.CertificateFile != "" && s.KeyFile == "":
		d.fail(m.at("certificate_file"), "add key_file: /etc/spillgate/redis.key", "the certificate's key is not named")
	case s.KeyFile != "" && s.CertificateFile == "":
		d.fail(m.at("key_file"), "add certificate_file: /etc/spillgate/redis.crt", "the key's certificate is not named")
	case s.CAFile+s.CertificateFile != "" && s.Shared() && !s.TLS():
		d.fail(m.at("ca_file", "certificate_file"), "write rediss:// for TLS", "redis: redis:// is spoken without TLS, so no certificate has an effect")
	}
	switch {
	case m.values["share"] != nil && !s.Leased:
		d.fail(m.at("share"), "add mode: leased, or remove it", "share: only blocks have a share, and none are taken in mode exact")
	case m.values["share"] != nil && s.Share == 0:
		d.fail(m.at("share"), "write 5%, or mode: exact", "share: 0 leaves no block to take")
	}
	if len(d.errs) == before {
		into.Store = s
	}
}

// TLS reports whether the servers are spoken to over TLS.
func (s *Store) TLS() bool { return s.Shared() && strings.HasPrefix(s.Redis[0], "rediss:") }

// unlike returns the first of the URLs that differs from the first by more than
// the host, 0 if none does.
func unlike(urls []string) int {
	rest := func(text string) string {
		u, err := url.Parse(text)
		if err != nil {
			return text
		}
		u.Host = ""
		if u.Path == "/" || u.Path == "/0" {
			u.Path = ""
		}
		return u.String()
	}
	for i, text := range urls {
		if rest(text) != rest(urls[0]) {
			return i
		}
	}
	return 0
}

func database(urls []string) string {
	for _, text := range urls {
		if u, err := url.Parse(text); err == nil {
			if n := strings.TrimPrefix(u.Path, "/"); n != "" && n != "0" {
				return n
			}
		}
	}
	return ""
}

// redisURL is where a server of Redis is.
var redisURL = kind[string]{
	schema: schema{"type": "string", "pattern": `^rediss?://([^/@:]+@)?[^/@]+(/[0-9]*)?$`},
	read: func(d *decoder, n *yaml.Node) (string, bool) {
		const fix = "write a URL such as redis://127.0.0.1:6379, or rediss://HOST:PORT for TLS"
		s, ok := wordOr(fix).read(d, n)
		if !ok {
			return "", false
		}
		u, err := url.Parse(s)
		if err != nil {
			d.fail(n, fix, "not a URL") // without its text, which may hold a password
			return "", false
		}
		_, password := u.User.Password()
		number := strings.TrimPrefix(u.Path, "/")
		_, bad := strconv.Atoi(number)
		switch {
		case password:
			d.fail(n, "name a file with the password: password_file: /etc/spillgate/redis-password", "a password in the URL would be read by whoever reads this file")
		case u.Scheme != "redis" && u.Scheme != "rediss":
			d.fail(n, fix, "%q begins with neither redis:// nor rediss://", s)
		case u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || number != "" && bad != nil:
			d.fail(n, fix, "%q is not a server's URL", s)
		default:
			if u.Port() == "" {
				u.Host = net.JoinHostPort(u.Hostname(), "6379")
			}
			return u.String(), true
		}
		return "", false
	},
}

// readServer reads the server part, and holds its keys against each other.
func readServer(d *decoder, n *yaml.Node, s *Server) {
	m, ok := serverForm.read(d, n, s)
	if s.unread = !ok || m.spoilt(); !ok {
		return
	}
	if s.State != "" && s.Store.Shared() {
		d.fail(m.at("state"), "remove one of the two", "state: what is counted is kept in the store, so there is none to keep here")
	}
	if s.H2C && s.TLS != (TLS{}) {
		d.fail(m.at("h2c"), "remove h2c: with tls HTTP/2 is spoken as it is", "h2c: with tls nothing is spoken without TLS, so this has no effect")
	}
	switch {
	case s.Headers == HeadersOff && s.Dialects != nil:
		d.fail(m.at("dialects"), "remove one of the two", "dialects: with headers: off no answer tells of limits, so this has no effect")
	case s.Headers == HeadersOff && s.PartitionKeys:
		d.fail(m.at("partition_keys"), "remove one of the two", "partition_keys: with headers: off no answer tells of limits, so this has no effect")
	case s.PartitionKeys && s.Dialects != nil && !slices.Contains(s.Dialects, DialectDraft):
		d.fail(m.at("partition_keys"), "add draft to dialects, or remove it", "partition_keys: only the dialect draft tells them, so this has no effect")
	}
}

// Text says for people where s is, without a secret.
func (s *Store) Text() string {
	where := strings.Join(s.Redis, ", ")
	switch {
	case s.Sentinel != "":
		where = fmt.Sprintf("%s, as the Sentinels %s say", s.Sentinel, where)
	case s.Cluster:
		where = "the cluster of " + where
	}
	mode := "exact"
	if s.Leased {
		share := float64(s.Share)
		if s.Share == 0 {
			share = 100 * spillgate.DefaultLeaseShare
		}
		mode = fmt.Sprintf("leased (at most %g%% of a limit in blocks)", share)
	}
	nodes := fmt.Sprintf("%d nodes", s.Nodes)
	switch s.Nodes {
	case 0:
		nodes = "nodes counted"
	case 1:
		nodes = "1 node"
	}
	return fmt.Sprintf("%s, %s, %s", where, mode, nodes)
}
