package rate

import (
	"sync"
	"time"
)

// Sometimes runs a function now and then: at the first call of Do, and at
// every other call that one of its fields lets through. The zero Sometimes
// runs a function once. It is safe for concurrent use as long as nobody
// changes its fields, and must not be copied after first use.
//
//	var warn = rate.Sometimes{First: 3, Interval: time.Minute}
//
//	func onError(err error) {
//		warn.Do(func() { log.Print(err) })
//	}
type Sometimes struct {
	First    int           // if above 0, the first so many calls run
	Every    int           // if above 0, the first call and each so many later runs
	Interval time.Duration // if above 0, a call that comes so long after the last run runs

	mu    sync.Mutex
	calls int
	ran   time.Time // the end of the last run, noted if Interval is set
}

// Do runs f if this is the first call, or if First, Every or Interval lets it
// through. Calls wait for each other, the function included: f should be
// short, and must not call Do on the same Sometimes, which would wait for
// itself.
func (s *Sometimes) Do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due() {
		f()
		if s.Interval > 0 {
			s.ran = time.Now()
		}
	}
	s.calls++
}

// due reports whether the call at hand runs.
func (s *Sometimes) due() bool {
	switch {
	case s.calls == 0 || s.calls < s.First:
		return true
	case s.Every > 0 && s.calls%s.Every == 0:
		return true
	}
	return s.Interval > 0 && time.Since(s.ran) >= s.Interval
}
