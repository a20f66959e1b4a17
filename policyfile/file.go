package policyfile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/policy"
)

// A File is what a policy file says.
type File struct {
	// Name is the file's name as it was given.
	Name string
	// Policy holds the rules, compiled. The Source of each is "file:line".
	Policy *policy.Policy
	// Server is for the gateway. Its zero value is never seen: what the file
	// leaves out has its default.
	Server Server
	// ForGateway reports that the file has a server part.
	ForGateway bool
	// Tests are the scenarios of the file; Run runs one. Programs that only
	// decide have no use for them.
	Tests []*Test
	// Warnings are what the file says and can hardly mean, in the order of
	// their places.
	Warnings []Warning

	beyond    Errors
	overrides []policy.Override
	files     fs.FS // that lists are read from
}

// BeyondGateway returns what of the policy needs a program: the gateway knows
// no user, for example, and a rule keyed by it would put the whole world under
// one limit. It is [Errors], or nil. A file with a server part is for the
// gateway, and [Parse] returns the same with all that is wrong.
func (f *File) BeyondGateway() error {
	if len(f.beyond) == 0 {
		return nil
	}
	return f.beyond
}

// A Server is how the gateway serves. A program that only wants the policy has
// no use for it. Names of files that count from the policy file's folder have that
// folder in front.
type Server struct {
	// Listen is a host (may be empty) and port; [DefaultListen] if the file
	// names none.
	Listen string
	// Upstream is where requests go, an http or https URL, or an h2c one for HTTP/2
	// without TLS; "" if the file names none.
	Upstream string
	// UpstreamCAFile holds the certificates of those who sign the certificates of
	// upstreams, in PEM; "" for those that the system trusts.
	UpstreamCAFile string
	// Client finds the client's address. It is nil if the file names no
	// proxies: nobody is trusted, and the client is the peer.
	Client *clientip.Resolver
	// ClientIP is what Client was made of.
	ClientIP clientip.Options
	// Headers says which answers carry RateLimit fields.
	Headers Headers
	// State is the file that keeps what was counted over a restart; "" if the
	// file names none.
	State string
	// Store says where several gateways count together.
	Store Store
	// Dialects says which fields tell of limits; nil is [DialectDraft].
	Dialects []Dialect
	// Jitter is how much longer Retry-After may become, in percent.
	Jitter int
	// PartitionKeys says that the RateLimit fields carry pk.
	PartitionKeys bool
	// FingerprintKeyFile is the file that [Server.FingerprintKey] reads; "" if
	// the file names none.
	FingerprintKeyFile string
	// Connections limits the connections of each peer.
	Connections Connections
	// TLS is the certificate by which HTTPS is spoken.
	TLS TLS
	// H2C says that HTTP/2 is spoken without TLS, too.
	H2C bool

	unread bool // something of it could not be read
}

// DefaultListen is where the gateway listens if the file does not say.
const DefaultListen = "127.0.0.1:8080"

// Headers says which answers carry RateLimit fields.
type Headers uint8

const (
	// HeadersOn is for every answer. It is the default.
	HeadersOn Headers = iota
	// HeadersRefusals is for refusals only.
	HeadersRefusals
	// HeadersOff is for none.
	HeadersOff
)

// String returns h as it is written in a file.
func (h Headers) String() string {
	for _, c := range headersWords {
		if c.value == h {
			return c.word
		}
	}
	return fmt.Sprintf("headers(%d)", uint8(h))
}

// Load reads the policy of a file. The error is as of [LoadFile].
func Load(path string) (*policy.Policy, error) {
	f, err := LoadFile(path)
	if err != nil {
		return nil, err
	}
	return f.Policy, nil
}

// LoadFile reads a file. What is wrong with its text is [Errors]; a file that
// can't be read is the file system's error, wrapped.
func LoadFile(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	defer file.Close()
	// One byte more than allowed is enough for Parse to refuse the file.
	data, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	return ParseFS(os.DirFS(filepath.Dir(path)), path, data)
}

// Parse reads the text of a file; name stands for it in errors, and its folder is
// the one that names of files in the server part count from. It reads no other files:
// where the text names one, that is an error. The error is of type [Errors].
func Parse(name string, data []byte) (*File, error) { return ParseFS(nil, name, data) }

// ParseFS is [Parse] for text that may name other files, which it reads from
// files: those beside the policy file, and in the folders below.
func ParseFS(files fs.FS, name string, data []byte) (*File, error) {
	src, e := newSource(name, data)
	if e != nil {
		return nil, Errors{e}
	}
	root, e := src.root()
	if e != nil {
		return nil, Errors{e}
	}
	d := &decoder{src: src, files: files}
	f := &File{Name: name, Server: Server{Listen: DefaultListen}, files: files}
	d.file(root, f)
	if len(d.errs) > 0 {
		return nil, sorted(d.errs)
	}
	f.Server.from(filepath.Dir(name))
	return f, nil
}
