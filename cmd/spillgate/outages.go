package main

import (
	"log/slog"
	"sync"
	"time"

	"github.com/spillgate/spillgate/redisstore"
)

// outageEvery is how often at most the log tells that a server stopped answering:
// one that is between the two does so many times a second.
const outageEvery = 10 * time.Second

// outages tells the log of servers of the store that do not answer, and again do.
type outages struct {
	logger *slog.Logger
	again  func() // follows the line that a server answers again

	mu     sync.Mutex
	server map[string]*outage
}

// An outage is what is known, and was told, of one server.
type outage struct {
	told time.Time // when last that it does not answer
	more int       // how often it stopped since, which was not told yet
	open bool      // it does not answer
	why  redisstore.Fault
}

// watch is for [redisstore.Watch].
func (s *outages) watch(server string, open bool, why redisstore.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.server[server]
	if o == nil {
		if s.server == nil {
			s.server = map[string]*outage{}
		}
		o = &outage{}
		s.server[server] = o
	}
	if o.open = open; open {
		o.why = why
	}
	left := outageEvery - time.Since(o.told)
	switch {
	case !open && o.more == 0:
		ofServer(s.logger, server).Info("the store answers again")
		s.again()
	case !open:
	case o.more == 0 && (o.told.IsZero() || left <= 0):
		o.told = time.Now()
		ofServer(s.logger, server).Error("the store does not answer: rules decide as their on_fault says", "fault", why.String())
	default:
		if o.more++; o.more == 1 {
			time.AfterFunc(left, func() { s.sum(server) })
		}
	}
}

// ofServer names the server in what is told, if there are several.
func ofServer(logger *slog.Logger, server string) *slog.Logger {
	if server == "" {
		return logger
	}
	return logger.With("server", server)
}

// sum tells what was left out.
func (s *outages) sum(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.server[server]
	what := "the store stopped answering again, and answers by now: rules decided as their on_fault says meanwhile"
	if o.open {
		what = "the store stopped answering again, and still does not: rules decide as their on_fault says"
	}
	ofServer(s.logger, server).Error(what, "fault", o.why.String(), "times", o.more, "answers", !o.open)
	o.told, o.more = time.Now(), 0
}
