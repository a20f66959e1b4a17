// Command events measures what it costs the gateway to read the usage of a
// stream while it passes by: the processor time of a gateway process for the same
// streams of events, once under a policy that counts requests alone and once
// under one that settles tokens as well.
//
//	go run ./bench/events [-short] [-streams N] [-rounds N]
//
// A stream has 10,000 events of a chat, as OpenAI sends them when usage is asked
// for. It is sent event by event, the next one when the client has the one before,
// so that none are gathered on the way; and once more in pieces of 32 KiB, for
// which a proxy has the least to do.
//
// Both gateways are measured in turn, their start is subtracted, and the median
// of the rounds counts. The goal is that settling costs at most 1.2 times the
// other, event by event; the run fails (exit code 1) where it is off by a factor, unless it is a short one.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spillgate/spillgate/bench/internal/report"
	"github.com/spillgate/spillgate/bench/internal/server"
)

const (
	events = 10_000

	plain = `
server: {listen: "127.0.0.1:0", upstream: "http://%s"}
rules:
  - {name: requests, limit: 1_000_000/s}
`
	settled = plain + `
  - {name: tokens, limit: 1_000_000_000/s, unit: tokens}
usage:
  - {format: openai, output: "1000"}
`
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "events:", err)
		os.Exit(1)
	}
}

func run() error {
	streams := flag.Int("streams", 5, "how many streams a measurement sends")
	rounds := flag.Int("rounds", 5, "how many measurements count")
	short := flag.Bool("short", false, "measure less, within some seconds")
	flag.Parse()
	if *short {
		*streams, *rounds = 1, 3
	}
	if *streams < 1 || *rounds < 1 {
		return errors.New("-streams and -rounds must be at least 1")
	}
	dir, err := os.MkdirTemp("", "events")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := bench{dir: dir}
	if b.gateway, err = server.Gateway(dir); err != nil {
		return err
	}
	fmt.Printf("%s %s/%s, %d processors; streams of %d events, %d a measurement, median of %d\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), events, *streams, *rounds)
	rows := [][]string{{"processor time a stream, ms", "without", "with tokens", "ratio"}}
	var claims []report.Claim
	for _, way := range []struct {
		name  string
		piece int // bytes; 0 is an event
		times int // as many streams: what costs little takes more of them to be seen
	}{{"event by event", 0, 1}, {"32 KiB at a time", 32 << 10, 10}} {
		var without, with, ratios []float64
		for range *rounds {
			a, err := b.measure(plain, way.piece, *streams*way.times)
			if err != nil {
				return err
			}
			c, err := b.measure(settled, way.piece, *streams*way.times)
			if err != nil {
				return err
			}
			without, with, ratios = append(without, a), append(with, c), append(ratios, c/a)
		}
		ratio := report.Median(ratios)
		rows = append(rows, []string{way.name, fmt.Sprintf("%.2f", report.Median(without)), fmt.Sprintf("%.2f", report.Median(with)), fmt.Sprintf("%.2f", ratio)})
		if way.piece == 0 {
			claims = append(claims, report.Claim{What: "a stream with tokens / without, " + way.name, Got: ratio, Goal: 1.2, Fail: 2})
		}
	}
	report.Table(os.Stdout, rows)
	return report.Judge(os.Stdout, claims, !*short)
}

type bench struct {
	gateway, dir string        // the program, and a folder
	seen         chan struct{} // an event came; nil if nobody waits for it
}

// measure returns the processor time in milliseconds that a gateway under the
// policy takes for a stream.
func (b *bench) measure(policy string, piece, streams int) (ms float64, err error) {
	if b.seen = nil; piece == 0 {
		b.seen = make(chan struct{}, events)
	}
	upstream := &http.Server{Handler: model(piece, b.seen)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = upstream.Serve(ln) }() // ends by Close
	defer func() { upstream.Close(); <-ended }()
	file := filepath.Join(b.dir, "limits.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, policy, ln.Addr()), 0o600); err != nil {
		return 0, err
	}
	start, err := b.serve(file, 0)
	if err != nil {
		return 0, err
	}
	whole, err := b.serve(file, streams)
	if err != nil {
		return 0, err
	}
	return float64((whole - start).Microseconds()) / 1000 / float64(streams), nil
}

// serve starts a gateway, asks it for something small and for streams, ends it,
// and returns the processor time that it took.
func (b *bench) serve(file string, streams int) (time.Duration, error) {
	s, err := server.Start(b.gateway, "serve", file)
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	url := "http://" + s.Addr
	if err := b.read(url, false); err != nil {
		return 0, err
	}
	for range streams {
		if err := b.read(url, true); err != nil {
			return 0, err
		}
	}
	return s.End()
}

// read reads a whole stream, or asks for nothing but an answer.
func (b *bench) read(url string, whole bool) error {
	if !whole {
		url += "/nothing"
	}
	resp, err := http.Post(url, "application/json", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	n := int64(0)
	for {
		line, err := in.ReadSlice('\n')
		n += int64(len(line))
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if b.seen != nil && len(line) == 1 {
			b.seen <- struct{}{}
		}
	}
	if resp.StatusCode != http.StatusOK || whole && n < events*200 {
		return fmt.Errorf("status %d, %d bytes", resp.StatusCode, n)
	}
	return nil
}

// model answers with a stream, in pieces of that many bytes, or event by event,
// as they were seen.
func model(piece int, seen chan struct{}) http.HandlerFunc {
	var text []byte
	var ends []int
	for i := range events - 2 {
		text = fmt.Appendf(text, "data: {\"id\":\"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT\",\"object\":\"chat.completion.chunk\",\"created\":1741569952,\"model\":\"gpt-4.1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word %d\"},\"finish_reason\":null}],\"usage\":null}\n\n", i)
		ends = append(ends, len(text))
	}
	text = append(text, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":9999,\"total_tokens\":10018}}\n\n"...)
	ends = append(ends, len(text))
	text = append(text, "data: [DONE]\n\n"...)
	ends = append(ends, len(text))
	if piece > 0 {
		ends = nil
		for end := piece; end < len(text)+piece; end += piece {
			ends = append(ends, min(end, len(text)))
		}
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/nothing") {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		from := 0
		for _, to := range ends {
			if _, err := w.Write(text[from:to]); err != nil || flush.Flush() != nil {
				return
			}
			if from = to; seen == nil {
				continue
			}
			select {
			case <-seen:
			case <-r.Context().Done():
				return
			}
		}
	}
}
