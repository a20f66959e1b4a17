package unpack

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
)

// A worker is a reader that works until it is told to go on, and waits for its
// source in between.
type worker struct {
	from    io.Reader
	working chan<- int // is told of each that begins, and ends, to work
	goOn    <-chan struct{}
}

func (w *worker) Reset(r io.Reader) error { w.from = r; return nil }

func (w *worker) Read(b []byte) (int, error) {
	n, err := w.from.Read(b)
	w.working <- 1
	<-w.goOn
	w.working <- -1
	return n, err
}

// However many answers there are, only so many readers as have turns hold more
// than is counted; those that wait for their answers to go on need none.
func TestSoManyWorkAtOnceAsThereAreTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const turns, answers = 2, 5
		working, goOn := make(chan int, 4*answers), make(chan struct{})
		p := &pool[*worker]{load: &load{turns: make(chan struct{}, turns)}, window: 1 << 20,
			make: func() (*worker, error) { return &worker{working: working, goOn: goOn}, nil }}
		read := func(from io.Reader, ended chan<- struct{}) {
			r, err := p.reader(from)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.ReadAll(r)
			_ = r.Close()
			ended <- struct{}{}
		}
		// Some whose answers stand still, for ever nearly.
		standing := make(chan struct{}, answers)
		var stalled []*io.PipeWriter
		for range answers {
			from, to := io.Pipe()
			stalled = append(stalled, to)
			go read(from, standing)
		}
		synctest.Wait()
		ended := make(chan struct{}, answers)
		for range answers {
			go read(strings.NewReader("answer"), ended)
		}
		at := 0
		for range 2 * answers { // each reads twice: something, and the end
			synctest.Wait()
			for len(working) > 0 {
				at += <-working
			}
			if at < 1 || at > turns {
				t.Errorf("%d work at once, want %d at most, and one at least", at, turns)
			}
			goOn <- struct{}{}
		}
		for range answers {
			<-ended
		}
		close(ended)
		for _, to := range stalled {
			to.Close()
			goOn <- struct{}{}
			<-standing
		}
	})
}
