// Command redis measures stores in Redis, side by side on one server: this
// repository's on go-redis and on rueidis, redis_rate, and a plain GET as the
// floor. It measures leases, and what happens while the server is away.
//
//	go run ./bench/redis [-short] [-only PART] [-flights N]
//
// Contestants take turns round by round, and the median of the rounds counts.
// Numbers don't carry over to another machine, ratios of one run do. The run
// fails (exit code 1) where a ratio is off by a factor (with -short, only a count of
// calls or of units).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/bench/internal/report"
	"github.com/spillgate/spillgate/bench/internal/server"
)

// quiet is a logger of go-redis that says nothing: servers that are away are what
// is measured.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func main() {
	redis.SetLogger(quiet{})
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench/redis:", err)
		os.Exit(1)
	}
}

// The parts of a run.
const (
	partStores  = "stores"
	partLeases  = "leases"
	partOutages = "outages"
)

func run() error {
	short := flag.Bool("short", false, "measure for some seconds only")
	flights := flag.Int("flights", 0, "calls under way at once of our stores; 0 is their default")
	only := flag.String("only", "", "measure one part only: stores, leases or outages")
	flag.Parse()
	if flag.NArg() > 0 || *flights < 0 {
		return errors.New("flags only, and none of them negative; see -help")
	}
	if *only != "" && !slices.Contains([]string{partStores, partLeases, partOutages}, *only) {
		return fmt.Errorf("-only %s: want stores, leases or outages", *only)
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
	var all []report.Claim
	for _, part := range []struct {
		name    string
		measure func() ([]report.Claim, error)
	}{
		{partStores, func() ([]report.Claim, error) { return stores(running.Addr, *flights, rounds, length) }},
		{partLeases, func() ([]report.Claim, error) { return leases(running.Addr, rounds, length) }},
		{partOutages, func() ([]report.Claim, error) { return outages(rounds, length) }},
	} {
		if *only != "" && *only != part.name {
			continue
		}
		claims, err := part.measure()
		if err != nil {
			return err
		}
		all = append(all, claims...)
	}
	return report.Judge(os.Stdout, all, !*short)
}

// stores measures stores side by side.
func stores(addr string, flights, rounds int, length time.Duration) ([]report.Claim, error) {
	all, closeAll, err := lineup(addr, flights)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	control := redis.NewClient(&redis.Options{Addr: addr})
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
					return nil, fmt.Errorf("%s, %s: %w", c.name, w.name, err)
				}
				t[cell{w.name, c.name}] = append(t[cell{w.name, c.name}], r)
			}
		}
	}
	t.print(all)
	bytes, err := sizes(control, all)
	if err != nil {
		return nil, err
	}
	return append(t.claims(), report.Claim{What: "bytes a key, by those of redis_rate", Got: bytes[ours] / bytes[redisRate], Goal: 1, Fail: 1, Counted: true}), nil
}

// startRedis starts a redis-server that keeps nothing on disk.
func startRedis() (*server.Server, error) {
	addr, err := server.FreeAddr()
	if err != nil {
		return nil, err
	}
	return startRedisAt(addr)
}

func startRedisAt(addr string) (*server.Server, error) {
	_, port, _ := net.SplitHostPort(addr)
	return server.StartAt(addr, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
}

// A workload is what so many callers do at once.
type workload struct {
	name    string
	callers int
	pace    time.Duration // between two calls of one caller; 0 asks without a rest
}

const (
	uniform  = "10k keys, 64 callers"
	hot      = "one hot key, 64 callers"
	three    = "three rules, 64 callers"
	alone    = "one caller"
	refusing = "refusing one key, 64 callers"
	steady   = "10k keys, 64 callers, 10,000 a second"
)

var workloads = []workload{{uniform, 64, 0}, {hot, 64, 0}, {three, 64, 0}, {alone, 1, 0}, {refusing, 64, 0}, {steady, 64, 64 * time.Second / 10_000}}

// A result is what one round of one contestant gave.
type result struct {
	rate     float64 // decisions a second
	p50, p99 time.Duration
	server   time.Duration // processor time of the server a decision
	client   time.Duration // and of this process, with what it takes to measure
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
	spent, err := ownTime()
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	var wg sync.WaitGroup
	for caller := range w.callers {
		wg.Go(func() {
			first := w.pace * time.Duration(caller) / time.Duration(w.callers)
			for n := 0; ; n++ {
				if w.pace > 0 {
					time.Sleep(first + w.pace*time.Duration(n) - time.Since(began))
				}
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
	now, err := ownTime()
	if err != nil {
		return result{}, err
	}
	after, err := processorTime(control)
	if err != nil {
		return result{}, err
	}
	var sorted []time.Duration
	for _, ws := range waits {
		sorted = append(sorted, ws...)
	}
	if len(sorted) == 0 {
		return result{}, fmt.Errorf("nobody decided within %s: the machine has no time to measure", length)
	}
	slices.Sort(sorted)
	n := done.Load()
	return result{
		rate: float64(n) / took.Seconds(), p50: sorted[len(sorted)/2], p99: sorted[len(sorted)*99/100],
		server: (after - before) / time.Duration(n),
		client: (now - spent) / time.Duration(n),
	}, nil
}

// ownTime returns the processor time of this process.
func ownTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
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
func clientTime(r result) float64 { return float64(r.client) }

func (t table) print(all []contestant) {
	for _, load := range workloads {
		rows := [][]string{{load.name, "decisions/s", "p50 µs", "p99 µs", "server µs", "client µs"}}
		for _, c := range all {
			k := cell{load.name, c.name}
			if t[k] != nil {
				us := func(number func(result) float64) float64 { return t.median(k, number) / 1e3 }
				rows = append(rows, []string{c.name, fmt.Sprintf("%.0f", t.median(k, rate)), fmt.Sprintf("%.0f", us(p50)), fmt.Sprintf("%.0f", us(p99)), fmt.Sprintf("%.2f", us(serverTime)), fmt.Sprintf("%.2f", us(clientTime))})
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
		{What: "refusing a leased key: decisions/s by those of memory", Got: ratio(refusing, oursLeased, memory, rate), Goal: 0.5, Fail: 0.1, AtLeast: true},
		{What: "a steady load: go-redis's time in this process by rueidis's", Got: ratio(steady, ours, oursRueidis, clientTime), Goal: 1, Fail: math.Inf(1)},
	}
}
