package policy

import (
	"container/heap"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/internal/topk"
)

// A Block is a key that a rule's penalty shuts out.
type Block struct {
	// ID names the key to [Engine.Free]. It is a keyed digest, and tells
	// nothing of the key's text.
	ID spillgate.Key
	// Key is the key in words, as [Caller] has it.
	Key string
	// Since is when the block began, or, if this engine has not made it, when
	// the first request came that it refused: so it is after a restart.
	Since time.Time
	// Until is when it ends.
	Until time.Time
	// Times is which block in a row it is, 0 if this engine has not made it.
	Times int64
	// Refused counts the requests that it has refused.
	Refused uint64
}

// Blocked returns n of the keys that the rule of that name has blocked, those
// whose blocks last longest first: nil if there is no such rule, nobody is
// blocked, or n is below 1.
//
// It lists as many as [Track] says; if there are more, those whose blocks end
// first are left out, and are blocked all the same. A block that another engine
// has made, or an earlier process, is listed once it has refused a request.
func (e *Engine) Blocked(rule string, n int) []Block {
	i, err := e.ruleOf(rule)
	if err != nil || e.penalties == nil || e.penalties[i] == nil {
		return nil
	}
	return e.penalties[i].list.top(n, time.Now())
}

// blockedUntil returns when the block of a key of the i-th rule ends, as far as it is
// listed; the zero Time if there is none.
func (e *Engine) blockedUntil(i int, key spillgate.Key) (until time.Time) {
	if e.penalties == nil || e.penalties[i] == nil {
		return until
	}
	l := &e.penalties[i].list
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.byKey[key]; b != nil {
		until = b.Until
	}
	return until
}

// A blockList is the blocks of a rule in words, for people. What is decided
// does not depend on it.
type blockList struct {
	most int

	mu    sync.Mutex
	byKey map[spillgate.Key]*listedBlock
	heap  blockHeap
}

type listedBlock struct {
	Block
	pos int // in the heap
}

// add lists a block that begins now.
func (l *blockList) add(key spillgate.Key, now time.Time, lasts time.Duration, times int64, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.enter(key, now, now.Add(lasts), text); b != nil {
		b.Since, b.Until, b.Times = now, now.Add(lasts), times
		heap.Fix(&l.heap, b.pos)
	}
}

// refused counts a request of a blocked key, which is free after wait.
func (l *blockList) refused(key spillgate.Key, now time.Time, wait time.Duration, text func() []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.byKey[key]
	if b == nil || !b.Until.After(now) {
		if b = l.enter(key, now, now.Add(wait), text()); b == nil {
			return
		}
	}
	b.Refused++
}

// enter returns the entry of key, a new one unless its block goes on, nil if
// there is no place for it.
func (l *blockList) enter(key spillgate.Key, now, until time.Time, text []byte) *listedBlock {
	if b := l.byKey[key]; b != nil {
		if b.Until.After(now) {
			return b
		}
		l.drop(b)
	}
	if len(l.heap) >= l.most {
		if l.most == 0 || l.heap[0].Until.After(now) && !l.heap[0].Until.Before(until) {
			return nil
		}
		l.drop(l.heap[0])
	}
	if l.byKey == nil {
		l.byKey = make(map[spillgate.Key]*listedBlock)
	}
	b := &listedBlock{Block: Block{ID: key, Key: topk.Cut(text), Since: now, Until: until}}
	l.byKey[key] = b
	heap.Push(&l.heap, b)
	return b
}

func (l *blockList) drop(b *listedBlock) {
	delete(l.byKey, b.ID)
	heap.Remove(&l.heap, b.pos)
}

func (l *blockList) remove(key spillgate.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.byKey[key]; b != nil {
		l.drop(b)
	}
}

// top returns n blocks that have not ended at now, the longest first.
func (l *blockList) top(n int, now time.Time) []Block {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.heap) > 0 && !l.heap[0].Until.After(now) {
		l.drop(l.heap[0])
	}
	if n < 1 || len(l.heap) == 0 {
		return nil
	}
	out := make([]Block, 0, len(l.heap))
	for _, b := range l.heap {
		out = append(out, b.Block)
	}
	slices.SortFunc(out, func(a, b Block) int { return b.Until.Compare(a.Until) })
	return out[:min(n, len(out))]
}

// blockHeap has the block that ends first in front.
type blockHeap []*listedBlock

func (h blockHeap) Len() int           { return len(h) }
func (h blockHeap) Less(i, j int) bool { return h[i].Until.Before(h[j].Until) }
func (h blockHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

// Push implements [heap.Interface].
func (h *blockHeap) Push(x any) {
	b := x.(*listedBlock)
	b.pos = len(*h)
	*h = append(*h, b)
}

// Pop implements [heap.Interface].
func (h *blockHeap) Pop() any {
	all := *h
	b := all[len(all)-1]
	*h = all[:len(all)-1]
	return b
}
