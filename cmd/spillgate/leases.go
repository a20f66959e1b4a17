package main

import (
	"fmt"
	"log/slog"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policyfile"
	"github.com/spillgate/spillgate/redisstore"
)

// leaseOptions are those of the store of a policy file. Where nodes are counted what one
// alone may hold is what all may hold together, however many there are.
func leaseOptions(c *policyfile.Store) spillgate.LeaseOptions {
	return spillgate.LeaseOptions{Nodes: max(1, c.Nodes), Share: float64(c.Share) / 100, Mixed: true}
}

// checkedLease says what leasing a rule's limit costs at the most.
type checkedLease struct {
	Rule     string `json:"rule"`
	Block    int64  `json:"block"`
	Extra    int64  `json:"extra"`
	Stranded int64  `json:"stranded"`
}

// leases returns that of each rule whose limit is leased, and the names of those
// that are asked exactly.
func leases(f *policyfile.File) (leased []checkedLease, exact []string) {
	if !f.Server.Store.Leased {
		return nil, nil
	}
	l, err := spillgate.NewLeased(spillgate.NewMemory(), leaseOptions(&f.Server.Store))
	if err != nil {
		return nil, nil // the file was read, so its share can be
	}
	for _, r := range f.Policy.Rules() {
		if r.Deny || r.Exempt {
			continue
		}
		if b := l.Bound(r.Limit); b.Block > 0 && r.TTL == 0 {
			leased = append(leased, checkedLease{r.Name, b.Block, b.Extra, b.Stranded})
		} else {
			exact = append(exact, r.Name)
		}
	}
	return leased, exact
}

// leasesText says for people what leases cost.
func leasesText(f *policyfile.File) (lines []string) {
	leased, exact := leases(f)
	for _, l := range leased {
		blocks := fmt.Sprintf("blocks of up to %d", l.Block)
		if f.Server.Store.Nodes == 0 {
			blocks = fmt.Sprintf("blocks of up to %d divided by the number of gateways, while those are no more than %d", l.Block, l.Block)
		}
		lines = append(lines, fmt.Sprintf("leased: %s in %s; at most %d beyond its limit, and at most %d unspent while somebody is refused", l.Rule, blocks, l.Extra, l.Stranded))
	}
	if len(exact) > 0 && f.Server.Store.Leased {
		lines = append(lines, "asked exactly: "+few(exact, ", "))
	}
	return lines
}

// logStore says what a store has done since the start.
func logStore(logger *slog.Logger, s *redisstore.Store) {
	st := s.Stats()
	var faults []any
	for i, n := range st.Faults {
		if n > 0 {
			faults = append(faults, slog.Uint64(redisstore.Fault(i).String(), n))
		}
	}
	logger.Info("the store's numbers", "calls", st.Calls, "carried", st.Gathered, "refused_without_a_call", st.Refused, "refusals_remembered", st.Remembered,
		"opened", st.Opened, "not_asked", st.Shut, "probes", st.Probes, "over_denied", st.OverDenied, "nodes_counted", st.Nodes,
		"corrections_waiting", st.Late, "corrections_dropped", st.Dropped, slog.Group("faults", faults...))
}

// logLeases says what leases have done since the start.
func logLeases(logger *slog.Logger, l *spillgate.Leased) {
	st := l.Stats()
	logger.Info("the leases' numbers", "keys", st.Keys, "blocks", st.Blocks, "units_held", st.Held, "refusals_remembered", st.Remembered,
		"allowed_without_a_call", st.Here, "refused_without_a_call", st.Refused, "asked", st.Asked, "ahead_of_need", st.Ahead, "errors", st.Errors,
		"units_returned", st.Returned, "units_lapsed", st.Lapsed, "units_forfeited", st.Forfeited, "bytes", st.Bytes)
}
