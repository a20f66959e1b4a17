package policyfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// Connections is how many connections one peer may open at the gateway, and
// have open. The zero value limits nothing.
type Connections struct {
	// Accepts is how often a peer may open one; the zero Limit if the file
	// says nothing.
	Accepts spillgate.Limit
	// Open is how many a peer may have open; 0 if the file says nothing.
	Open int
	// Prefix is how many bits of an IPv6 address make one peer; 0 means
	// [policy.DefaultPrefix].
	Prefix int
	// Exempt names the networks that are not limited, as
	// [clientip.ParseNetworks] reads them, and Networks are those. The proxies
	// of client_ip are exempt too.
	Exempt   []string
	Networks clientip.Networks
}

// Limited reports whether the file limits connections at all.
func (c *Connections) Limited() bool { return c.Accepts != (spillgate.Limit{}) || c.Open > 0 }

// maxOpen is the most connections of a peer that can be counted.
const maxOpen = 1 << 20

var connectionsField = field[Server]{
	key: "connections", about: "How many connections one peer may open, and have open, before TLS or HTTP spends anything on them. The proxies of client_ip are exempt.",
	schema: func() schema {
		s := connectionsForm.asSchema()
		s["anyOf"] = []any{schema{"required": []string{"accepts"}}, schema{"required": []string{"open"}}}
		return s
	}(),
	read: func(d *decoder, n *yaml.Node, s *Server) { readConnections(d, n, &s.Connections) },
}

var connectionsForm = form[Connections]{
	what:    "the connections part",
	example: "connections: {accepts: 20/s burst 50, open: 100}",
	also:    map[string]string{"rate": "accepts", "limit": "accepts", "new": "accepts", "max": "open", "concurrent": "open", "trusted": "exempt", "by": "key"},
	fields: []field[Connections]{
		in("accepts", "How often a peer may open a connection.", accepts,
			func(c *Connections, v spillgate.Limit) { c.Accepts = v }),
		in("open", "How many connections a peer may have open.", whole(1, maxOpen),
			func(c *Connections, v int64) { c.Open = int(v) }),
		in("key", "What makes one peer: client.ip, with the bits of an IPv6 address that count, 64 if left out. The address is the peer's own, whatever client_ip says.", peer,
			func(c *Connections, v int) { c.Prefix = v }),
		in("exempt", "Peers without these limits: addresses, CIDRs, or private, loopback, link-local, any.", oneOrMore(wordOr("write an address, a network, or a name such as private")),
			func(c *Connections, v []string) { c.Exempt = v }),
	},
}

func readConnections(d *decoder, n *yaml.Node, into *Connections) {
	var c Connections
	m, ok := connectionsForm.read(d, n, &c)
	if !ok || m.strange || m.bad["accepts"] || m.bad["open"] || m.bad["key"] || m.bad["exempt"] {
		return
	}
	if !c.Limited() {
		d.fail(m.node, "add accepts: 20/s burst 50, or open: 100", "nothing is limited")
		return
	}
	networks, err := clientip.ParseNetworks(c.Exempt...)
	var network *clientip.NetworkError
	if errors.As(err, &network) {
		fix := ""
		if name := closest(network.Entry, trustedNames); name != "" {
			fix = fmt.Sprintf("did you mean %q?", name)
		}
		d.fail(entry(m.at("exempt"), network.Index), fix, "exempt: %.60q: %s", network.Entry, network.Reason).Err = err
		return
	}
	if networks.ContainsUnix() {
		i := slices.Index(c.Exempt, clientip.Unix)
		d.fail(entry(m.at("exempt"), i), "remove it", "exempt: the gateway listens at no unix socket, so no peer comes from one")
		return
	}
	c.Networks = networks
	*into = c
}

// accepts is a limit by which nobody waits, and that comes back by itself.
var accepts = kind[spillgate.Limit]{
	schema: limit.schema,
	read: func(d *decoder, n *yaml.Node) (spillgate.Limit, bool) {
		l, ok := limit.read(d, n)
		if !ok {
			return l, false
		}
		switch l.Algorithm {
		case spillgate.Concurrency:
			d.fail(n, fmt.Sprintf("write open: %d", l.Rate), "%s says how many are open, not how often one is opened", l)
		case spillgate.Queue:
			d.fail(n, `write a rate, such as 20/s burst 50`, "%s makes callers wait, and a connection can't be told to", l)
		case spillgate.Unlimited:
			d.fail(n, "leave it out", "%s refuses no connection", l)
		default:
			lim, err := spillgate.New(l)
			if err != nil {
				d.fail(n, `write a rate, such as 20/s burst 50`, "%s", plain(err)).Err = err
				return l, false
			}
			_ = lim.Close()
			return l, true
		}
		return l, false
	},
}

// peer is client.ip with an optional prefix, as its bits.
var peer = kind[int]{
	schema: schema{"type": "string", "pattern": `^client\.ip(/(3[2-9]|[4-9][0-9]|1[01][0-9]|12[0-8]))?$`},
	read: func(d *decoder, n *yaml.Node) (int, bool) {
		p, ok := part.read(d, n)
		if !ok {
			return 0, false
		}
		if len(p.Attributes) != 1 || p.Attributes[0].Kind != policy.ClientIP || strings.ContainsRune(p.String(), ' ') {
			d.fail(n, "write client.ip, or client.ip/56 for larger networks", "%s: before a request is read, only the peer's address is known", p)
			return 0, false
		}
		return p.Prefix, true
	},
}
