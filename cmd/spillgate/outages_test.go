package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/redisstore"
)

// A server that answers and does not, many times a second, is told of a few times a
// minute, and the last that is told is what is so.
func TestOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		again := 0
		o := outages{logger: slog.New(slog.NewTextHandler(&log, nil)), again: func() { again++ }}
		lines := func() int { return strings.Count(log.String(), "\n") }
		o.watch("a", true, redisstore.Denied)
		o.watch("a", false, redisstore.NoFault)
		if lines() != 2 || again != 1 || !strings.Contains(log.String(), "fault=denied") {
			t.Fatalf("of a first outage:\n%s", &log)
		}
		for range 60 * 35 {
			<-time.After(time.Second / 35)
			o.watch("a", true, redisstore.Denied)
			o.watch("a", false, redisstore.NoFault)
		}
		<-time.After(outageEvery)
		synctest.Wait() // for who writes at that instant, too
		if n := lines(); n < 8 || n > 10 {
			t.Errorf("%d lines of a minute:\n%s", n, &log)
		}
		if all := log.String(); !strings.HasSuffix(all, "answers=true\n") || !strings.Contains(all, "times=35") || !strings.Contains(all, "and answers by now") || strings.Contains(all, "still does not") {
			t.Errorf("at the end:\n%s", all)
		}
		o.watch("a", true, redisstore.TimedOut) // within the time
		<-time.After(outageEvery)
		synctest.Wait() // for who writes at that instant, too
		if all := log.String(); !strings.HasSuffix(all, "fault=timeout times=1 answers=false\n") || !strings.Contains(all, "and still does not: rules decide as") {
			t.Errorf("it stays away:\n%s", all)
		}
		o.watch("a", false, redisstore.NoFault)
		if all := log.String(); !strings.Contains(all[strings.LastIndex(all[:len(all)-1], "\n")+1:], "answers again") {
			t.Errorf("it is back:\n%s", all)
		}
	})
}
