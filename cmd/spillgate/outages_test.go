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

// A server that is the only one has no name, and several have.
func TestOutagesNameTheServer(t *testing.T) {
	var log bytes.Buffer
	o := outages{logger: slog.New(slog.NewTextHandler(&log, nil)), again: func() {}}
	o.watch("", true, redisstore.Refused)
	o.watch("", false, redisstore.NoFault)
	if log.Len() == 0 || strings.Contains(log.String(), "server=") {
		t.Errorf("the only one:\n%s", &log)
	}
	o.watch("10.0.0.1:6379", true, redisstore.Refused)
	if !strings.HasSuffix(log.String(), "server=10.0.0.1:6379 fault=refused\n") {
		t.Errorf("one of several:\n%s", &log)
	}
}

// A time span is text in the log, in JSON too.
func TestLogHasSpansAsText(t *testing.T) {
	for form, want := range map[string]string{"json": `"drain":"1.5s","retry_after":"14.432ms"`, "text": "drain=1.5s retry_after=14.432ms"} {
		var log bytes.Buffer
		logger, err := newLogger(form, &log)
		if err != nil {
			t.Fatal(err)
		}
		logger.Info("x", "drain", 1500*time.Millisecond, "retry_after", "14.432ms")
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s: %s", form, &log)
		}
	}
}
