package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/connlimit"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// limitConnections limits the connections of ln as the file says, and returns nil if
// that says nothing. The proxies that client_ip trusts are exempt: each is one address
// for all its clients. Refusals are logged as those of requests are, so that a flood of
// them is none of lines.
func limitConnections(ln net.Listener, s *policyfile.Server, logger *slog.Logger) (*connlimit.Listener, error) {
	c := &s.Connections
	if !c.Limited() {
		return nil, nil
	}
	journal := policy.NewJournal(logger, connlimit.TooFast.String(), connlimit.TooMany.String())
	opts := []connlimit.Option{connlimit.Group(cmp.Or(c.Prefix, policy.DefaultPrefix)), connlimit.Reset(),
		connlimit.Exempt(c.Networks.Contains),
		connlimit.Exempt(func(a netip.Addr) bool {
			if !a.IsValid() { // a peer on a unix socket
				return c.Networks.ContainsUnix() || s.Client.Trusts("")
			}
			return s.Client.Trusts(a.String())
		}),
		connlimit.OnRefuse(func(a netip.Addr, why connlimit.Reason) {
			if suppressed, ok := journal.Line(why.String()); ok {
				logger.Info("connection refused", "peer", a, "because", why.String(), "suppressed", suppressed)
			}
		}),
	}
	if c.Open > 0 {
		opts = append(opts, connlimit.Open(c.Open))
	}
	if c.Accepts != (spillgate.Limit{}) {
		lim, err := spillgate.New(c.Accepts)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connections: accepts: %w", err), ln.Close())
		}
		opts = append(opts, connlimit.Accepts(lim))
	}
	return connlimit.New(ln, opts...), nil
}

// connectionsLine is what becomes of connections, in a report and in the log.
type connectionsLine struct {
	Accepted int64 `json:"accepted"`
	Exempt   int64 `json:"exempt"`   // of those
	Open     int64 `json:"open"`     // of those, now
	TooFast  int64 `json:"too_fast"` // refused
	TooMany  int64 `json:"too_many"` // refused
	Faults   int64 `json:"faults"`   // of accepting
}

// connectionsNow returns nil if connections are not limited.
func connectionsNow(l *connlimit.Listener) *connectionsLine {
	if l == nil {
		return nil
	}
	s := l.Stats()
	return &connectionsLine{s.Accepted, s.Exempt, s.Open, s.TooFast, s.TooMany, s.Faults}
}

// logConnections says at a stop what became of them.
func logConnections(logger *slog.Logger, l *connlimit.Listener) {
	if c := connectionsNow(l); c != nil {
		logger.Info("connections", "accepted", c.Accepted, "exempt", c.Exempt, "open", c.Open,
			"too_fast", c.TooFast, "too_many", c.TooMany, "faults", c.Faults)
	}
}

// connectionsText says for people what the file says of connections.
func connectionsText(c *policyfile.Connections) []string {
	var parts []string
	if c.Accepts != (spillgate.Limit{}) {
		parts = append(parts, c.Accepts.String())
	}
	if c.Open > 0 {
		parts = append(parts, fmt.Sprintf("%d open", c.Open))
	}
	if len(parts) == 0 {
		return nil
	}
	text := fmt.Sprintf("connections: each peer (IPv6 by /%d) %s", cmp.Or(c.Prefix, policy.DefaultPrefix), strings.Join(parts, ", "))
	if len(c.Exempt) > 0 {
		text += "; not " + few(c.Exempt, ", ")
	}
	return []string{text}
}

// checkedConnections is what `check --json` prints of them.
type checkedConnections struct {
	Accepts string   `json:"accepts,omitempty"`
	Open    int      `json:"open,omitempty"`
	Key     string   `json:"key"`
	Exempt  []string `json:"exempt,omitempty"`
}

func connectionsJSON(c *policyfile.Connections) *checkedConnections {
	if !c.Limited() {
		return nil
	}
	out := &checkedConnections{Open: c.Open, Exempt: c.Exempt}
	if c.Accepts != (spillgate.Limit{}) {
		out.Accepts = c.Accepts.String()
	}
	out.Key = fmt.Sprintf("client.ip/%d", cmp.Or(c.Prefix, policy.DefaultPrefix))
	return out
}
