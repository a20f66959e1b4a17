// Command redis measures stores in Redis, side by side on one server: this
// repository's on go-redis and on rueidis, redis_rate, and a plain GET as the
// floor.
//
//	go run ./bench/redis [-short] [-flights N]
//
// Contestants take turns round by round, and the median of the rounds counts.
// Numbers don't carry over to another machine, ratios of one run do. The run
// fails (exit code 1) where a ratio is off by a factor.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/bench/internal/report"
	"github.com/spillgate/spillgate/bench/internal/server"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench/redis:", err)
		os.Exit(1)
	}
}

func run() error {
	short := flag.Bool("short", false, "measure for some seconds only")
	flights := flag.Int("flights", 0, "calls under way at once of our stores; 0 is their default")
	flag.Parse()
	if flag.NArg() > 0 || *flights < 0 {
		return errors.New("flags only, and none of them negative; see -help")
	}
	rounds, length := 7, time.Second
	if *short {
		rounds, length = 3, 150*time.Millisecond
	}
	running, err := startRedis()
	if err != nil {
		return err
	}
	defer running.Stop()
	all, closeAll, err := lineup(running.Addr, *flights)
	if err != nil {
		return err
	}
	defer closeAll()
	control := redis.NewClient(&redis.Options{Addr: running.Addr})
	defer control.Close()
	t := table{}
	for range rounds {
		for _, w := range workloads {
			for _, c := range all {
				f := c.does[w.name]
				if f == nil {
					continue
				}
				r, err := measure(control, w, f, length)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", c.name, w.name, err)
				}
				t[cell{w.name, c.name}] = append(t[cell{w.name, c.name}], r)
			}
		}
	}
	t.print(all)
	if err := sizes(control, all); err != nil {
		return err
	}
	leased, err := leases(running.Addr, rounds, length)
	if err != nil {
		return err
	}
	return report.Judge(os.Stdout, append(t.claims(), leased...))
}

// startRedis starts a redis-server that keeps nothing on disk.
func startRedis() (*server.Server, error) {
	addr, err := server.FreeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	return server.StartAt(addr, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
}

// A workload is what so many callers do at once.
type workload struct {
	name    string
	callers int
}

const (
	uniform  = "10k keys, 64 callers"
	hot      = "one hot key, 64 callers"
	three    = "three rules, 64 callers"
	alone    = "one caller"
	refusing = "refusing one key, 64 callers"
)

var workloads = []workload{{uniform, 64}, {hot, 64}, {three, 64}, {alone, 1}, {refusing, 64}}

// A result is what one round of one contestant gave.
type result struct {
	rate     float64 // decisions a second
	p50, p99 time.Duration
	server   time.Duration // processor time of the server a decision
}

// measure has the callers decide for so long.
func measure(control *redis.Client, w workload, decide func(caller, n int) error, length time.Duration) (result, error) {
	var done atomic.Int64
	var failed atomic.Pointer[error]
	waits := make([][]time.Duration, w.callers)
	before, err := processorTime(control)
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	var wg sync.WaitGroup
	for caller := range w.callers {
		wg.Go(func() {
			for n := 0; ; n++ {
				from := time.Now()
				if from.Sub(began) > length || failed.Load() != nil {
					return
				}
				if err := decide(caller, n); err != nil {
					failed.Store(&err)
					return
				}
				if len(waits[caller]) < 1<<16 {
					waits[caller] = append(waits[caller], time.Since(from))
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	if err := failed.Load(); err != nil {
		return result{}, *err
	}
	after, err := processorTime(control)
	if err != nil {
		return result{}, err
	}
	var sorted []time.Duration
	for _, ws := range waits {
		sorted = append(sorted, ws...)
	}
	slices.Sort(sorted)
	n := done.Load()
	return result{
		rate: float64(n) / took.Seconds(), p50: sorted[len(sorted)/2], p99: sorted[len(sorted)*99/100],
		server: (after - before) / time.Duration(max(1, n)),
	}, nil
}

// processorTime returns how long the server's processes have run.
func processorTime(c *redis.Client) (time.Duration, error) {
	text, err := c.Info(context.Background(), "cpu").Result()
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(text) {
		var v float64
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && (name == "used_cpu_sys" || name == "used_cpu_user") {
			if _, err := fmt.Sscan(value, &v); err != nil {
				return 0, err
			}
			sum += v
		}
	}
	return time.Duration(sum * 1e9), nil
}

type cell struct{ workload, contestant string }

type table map[cell][]result

// median returns the median of one number over the rounds.
func (t table) median(c cell, number func(result) float64) float64 {
	var xs []float64
	for _, r := range t[c] {
		xs = append(xs, number(r))
	}
	return report.Median(xs)
}

func rate(r result) float64       { return r.rate }
func p50(r result) float64        { return float64(r.p50) }
func p99(r result) float64        { return float64(r.p99) }
func serverTime(r result) float64 { return float64(r.server) }

func (t table) print(all []contestant) {
	for _, load := range workloads {
		rows := [][]string{{load.name, "decisions/s", "p50 µs", "p99 µs", "server µs"}}
		for _, c := range all {
			k := cell{load.name, c.name}
			if t[k] != nil {
				us := func(number func(result) float64) float64 { return t.median(k, number) / 1e3 }
				rows = append(rows, []string{c.name, fmt.Sprintf("%.0f", t.median(k, rate)), fmt.Sprintf("%.0f", us(p50)), fmt.Sprintf("%.0f", us(p99)), fmt.Sprintf("%.2f", us(serverTime))})
			}
		}
		report.Table(os.Stdout, rows)
		fmt.Println()
	}
}

// claims are the ratios. One is off by a factor where the store is no better than
// redis_rate, or several times dearer than its floor.
func (t table) claims() []report.Claim {
	ratio := func(w, a, b string, number func(result) float64) float64 {
		return t.median(cell{w, a}, number) / t.median(cell{w, b}, number)
	}
	across := t.median(cell{three, ours}, rate) / t.median(cell{uniform, ours}, rate)
	return []report.Claim{
		{What: "10k keys: decisions/s by those of redis_rate", Got: ratio(uniform, ours, redisRate, rate), Goal: 3, Fail: 1, AtLeast: true},
		{What: "10k keys: p99 by that of redis_rate", Got: ratio(uniform, ours, redisRate, p99), Goal: 1. / 3, Fail: 1},
		{What: "10k keys: server time by that of redis_rate", Got: ratio(uniform, ours, redisRate, serverTime), Goal: 1. / 3, Fail: 1},
		{What: "a hot key: decisions/s by those of redis_rate", Got: ratio(hot, ours, redisRate, rate), Goal: 4, Fail: 1, AtLeast: true},
		{What: "one caller: p50 by that of a GET", Got: ratio(alone, ours, floor, p50), Goal: 1.3, Fail: 6},
		{What: "three rules: decisions/s by those of one rule", Got: across, Goal: 0.6, Fail: 0.1, AtLeast: true},
		{What: "refusing: decisions/s by those of memory", Got: ratio(refusing, ours, memory, rate), Goal: 0.5, Fail: 0.1, AtLeast: true},
	}
}
