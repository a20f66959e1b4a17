package policy

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
)

// A node is one network or value of one override. The nodes that hold for the
// same caller are chained: from the narrowest network to the widest, from one
// override to the next.
type node struct {
	over  int32 // the override
	own   int32 // what the list says of this entry alone, -1 if nothing
	line  int32 // of the list, 0 if it is not from one
	next  int32 // of the chain, -1 at its end
	until int64 // the end, in nanoseconds of the Unix epoch
}

// forever is the end of what has none.
const forever = math.MaxInt64

// networks finds all networks that hold an address, among very many. Since
// networks are disjoint or one within the other, the addresses fall into
// ranges, each of which knows its narrowest network, and each network knows
// the next wider one. So an address is one look into a table, a search among the
// few ranges that this leaves, and a short chain. Nothing in it is a pointer, and
// it is never changed.
type networks struct {
	starts []address // of the ranges, ascending
	heads  []int32   // the narrowest network of each, -1 for none

	// The upper 64 bits of addresses (of IPv4: all), from the first start to
	// the last, are cut into parts of 1<<shift each; jumps[i] is the first
	// range of part i or a later one.
	four  bool
	first uint64
	shift int
	jumps []int32
}

// maxJumps is how many parts there are at most.
const maxJumps = 1 << 16

// address is the 128 bits of an address; IPv4 has the low 32.
type address struct{ hi, lo uint64 }

func addressOf(a netip.Addr) address {
	if a.Is4() {
		b := a.As4()
		return address{lo: uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return address{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (a address) less(b address) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

// next returns the address after a; ok is false if a is the last one of all.
func (a address) next() (b address, ok bool) {
	if a.lo++; a.lo == 0 {
		a.hi++
	}
	return a, a != address{}
}

// last returns the last address of a network that begins with a.
func (a address) last(size, bits int) address {
	host := size - bits
	if host >= 64 {
		if host < 128 {
			a.hi |= 1<<(host-64) - 1
		} else {
			a.hi = math.MaxUint64
		}
		a.lo = math.MaxUint64
	} else {
		a.lo |= 1<<host - 1
	}
	return a
}

// head returns the narrowest network that holds a, -1 if none does.
func (n *networks) head(a address) int32 {
	if len(n.starts) == 0 || a.less(n.starts[0]) {
		return -1
	}
	part := min(n.part(a), uint64(len(n.jumps)-2))
	from, to := n.jumps[part], n.jumps[part+1]
	for from < to {
		mid := int32(uint32(from+to) >> 1)
		if s := &n.starts[mid]; a.less(*s) {
			to = mid
		} else {
			from = mid + 1
		}
	}
	return n.heads[from-1]
}

// part returns the part of an address that is not before the first start. It
// may be beyond the last part.
func (n *networks) part(a address) uint64 { return (n.upper(a) - n.first) >> n.shift }

func (n *networks) upper(a address) uint64 {
	if n.four {
		return a.lo
	}
	return a.hi
}

// index makes the table.
func (n *networks) index() {
	if len(n.starts) == 0 {
		return
	}
	n.first = n.upper(n.starts[0])
	parts := 1
	for parts < len(n.starts) && parts < maxJumps {
		parts *= 2
	}
	for n.part(n.starts[len(n.starts)-1]) >= uint64(parts) {
		n.shift++
	}
	n.jumps = make([]int32, parts+1)
	at := 0
	for i := range n.jumps {
		for at < len(n.starts) && n.part(n.starts[at]) < uint64(i) {
			at++
		}
		n.jumps[i] = int32(at)
	}
}

// A network of an override, before it has its place.
type network struct {
	prefix netip.Prefix
	node
}

// newNetworks makes the ranges of networks that are all of one family, and
// appends their nodes. Of one network that an override names again and again
// the entry that ends last is kept: it says all that the others say.
func newNetworks(all []network, nodes []node) (networks, []node) {
	slices.SortFunc(all, func(a, b network) int {
		if c := a.prefix.Compare(b.prefix); c != 0 { // by family, bits, then address
			if d := a.prefix.Addr().Compare(b.prefix.Addr()); d != 0 {
				return d
			}
			return a.prefix.Bits() - b.prefix.Bits()
		}
		if a.over != b.over {
			return int(a.over) - int(b.over)
		}
		return cmp.Compare(b.until, a.until)
	})
	all = slices.CompactFunc(all, func(a, b network) bool { return a.prefix == b.prefix && a.over == b.over })

	var n networks
	begin := func(at address, head int32) {
		if k := len(n.starts); k > 0 && n.starts[k-1] == at {
			n.heads[k-1] = head
			return
		}
		n.starts, n.heads = append(n.starts, at), append(n.heads, head)
	}
	type open struct {
		node int32
		last address
	}
	var inside []open
	head := func() int32 {
		if len(inside) == 0 {
			return -1
		}
		return inside[len(inside)-1].node
	}
	// leave closes the networks that end before an address, or all.
	leave := func(before *address) {
		for len(inside) > 0 && (before == nil || inside[len(inside)-1].last.less(*before)) {
			last := inside[len(inside)-1].last
			inside = inside[:len(inside)-1]
			if next, ok := last.next(); ok {
				begin(next, head())
			}
		}
	}
	for i := range all {
		a := addressOf(all[i].prefix.Addr())
		leave(&a)
		all[i].next = head()
		nodes = append(nodes, all[i].node)
		begin(a, int32(len(nodes)-1))
		inside = append(inside, open{int32(len(nodes) - 1), a.last(all[i].prefix.Addr().BitLen(), all[i].prefix.Bits())})
	}
	leave(nil)
	n.starts, n.heads = slices.Clip(n.starts), slices.Clip(n.heads)
	n.four = len(all) > 0 && all[0].prefix.Addr().Is4()
	n.index()
	return n, nodes
}

// ParseNetwork reads an address or a network as conditions and lists on
// client.ip have them: 203.0.113.9, 2001:db8::/32. IPv4 that is written as IPv6
// is IPv4.
func ParseNetwork(v string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(v)
	if err != nil {
		a, aerr := netip.ParseAddr(v)
		if aerr != nil {
			return netip.Prefix{}, fmt.Errorf("value %q: want an address or a network such as 203.0.113.0/24", v)
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("value %q: a network of IPv4 in IPv6 has at least 96 bits; write it as IPv4", v)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("value %q: has bits beyond its length; write %s", v, p.Masked())
	}
	return p, nil
}
