package redisstore

import "context"

// maxApart bounds the shapes that are kept apart.
const maxApart = 256

// shape says what rights o needs: those of its spaces, and of what it does there.
func (o *op) shape() []byte {
	b := append(make([]byte, 0, 128), byte('0'+o.turn()))
	for i := range o.parts {
		b = append(append(b, o.parts[i].sp.Name()...), 0)
	}
	return b
}

// apartOf returns o's shape if it is kept apart, else ""; l is locked.
func (l *lane) apartOf(o *op) string {
	if len(l.apart) == 0 {
		return ""
	}
	if shape := o.shape(); l.apart[string(shape)] {
		return string(shape)
	}
	return ""
}

// part keeps the shapes of g apart from now on, and reports whether there are several.
// A server that refuses something to one request refuses all that go with it, so those
// of such a shape get runs of their own until one is answered.
func (l *lane) part(g *group) (several bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := string(g.ops[0].shape())
	for _, o := range g.ops {
		o.apart = string(o.shape())
		several = several || o.apart != first
		if l.apart == nil || len(l.apart) >= maxApart {
			l.apart = map[string]bool{}
		}
		l.apart[o.apart] = true
	}
	return several
}

// join ends that: a run of that shape alone was answered.
func (l *lane) join(shape string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.apart, shape)
}

// askAgain asks once more for those of a run that was not begun: each by itself if they
// are lone, since their slot is on its way to another server, else each shape by itself,
// since somebody among them has no right to a key.
func (g *group) askAgain(ctx context.Context, l *lane, lone, given bool, floor int64) Fault {
	b := batches.Get().(*batch)
	defer b.free()
	b.lone = lone
	b.ops = append(b.ops, g.ops...)
	return b.ask(ctx, l, given, floor)
}
