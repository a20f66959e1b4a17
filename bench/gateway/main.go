// Command gateway measures what the gateway adds to a reverse proxy: whole, as
// processor time a request under wrk with nginx behind, and inside, as time a
// request of its handler.
//
//	go run ./bench/gateway [-short] [-pairs N] [-seconds N]
//
// The floor is httputil.ReverseProxy with the gateway's buffers and transport.
// Each runs as a process of its own on one core, and all take turns: a pair is
// the floor and a contestant, one after the other. The median of the pairs
// counts, and the spread is printed. What others do on the machine disturbs
// processor time less than the wall's. The run fails (exit code 1) when a ratio
// is off by a factor, unless it is a short one.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spillgate/spillgate/bench/internal/report"
	"github.com/spillgate/spillgate/bench/internal/server"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

const oneRule = `
server: {headers: off}
rules:
  - {name: everybody, key: client.ip, limit: 1000000/s}
`

const fiveRules = `
rules:
  - {name: everybody, key: client.ip, limit: 1000000/s}
  - {name: host, key: host, limit: 1000000/s}
  - {name: page, key: [client.ip, path], limit: 1000000/s}
  - {name: method, key: [client.ip, method], limit: 1000000/s}
  - {name: all, limit: 1000000/s}
`

// contestants take turns, in this order.
var contestants = []string{"floor", "one rule", "five rules", "trivial", "refusing"}

// ratios are the claims: the processor time of one over that of another.
var ratios = []struct {
	what, over, under string
	goal, fail        float64
}{
	{"gateway with one rule / reverse proxy", "one rule", "floor", 1.05, 2},
	{"gateway with five rules and fields / reverse proxy", "five rules", "floor", 1.08, 2},
	{"a refusal / a trivial reply", "refusing", "trivial", 1.2, 2},
}

func run() error {
	short := flag.Bool("short", false, "measure less, within a minute")
	pairs := flag.Int("pairs", 7, "measure so many `pairs`")
	seconds := flag.Int("seconds", 3, "load each for so many `seconds`")
	role := flag.String("serve", "", "serve as floor, trivial or refusing; this program starts itself so")
	to := flag.String("upstream", "", "the `address` behind the floor")
	flag.Parse()
	if *role != "" {
		return serve(*role, *to)
	}
	if flag.NArg() > 0 || *pairs < 1 || *seconds < 1 {
		return errors.New("want flags only, and 1 or more; see -help")
	}
	if *short {
		*pairs, *seconds = min(*pairs, 3), 1
	}
	dir, err := os.MkdirTemp("", "spillgate-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, err := startAll(dir)
	defer func() {
		for _, s := range all {
			s.Stop()
		}
	}()
	if err != nil {
		return err
	}
	claims, err := whole(all, *pairs, *seconds)
	if err != nil {
		return err
	}
	inside, err := overhead(dir, *pairs)
	if err != nil {
		return err
	}
	return report.Judge(os.Stdout, append(claims, inside), !*short)
}

// startAll starts nginx and what stands before it.
func startAll(dir string) (map[string]*server.Server, error) {
	all := map[string]*server.Server{}
	nginx, err := startNginx(dir)
	if err != nil {
		return all, err
	}
	all["nginx"] = nginx
	program, err := server.Gateway(dir)
	if err != nil {
		return all, err
	}
	self, err := os.Executable()
	if err != nil {
		return all, err
	}
	commands := map[string][]string{
		"floor":    {self, "-serve", "floor", "-upstream", nginx.Addr},
		"trivial":  {self, "-serve", "trivial"},
		"refusing": {self, "-serve", "refusing"},
	}
	for name, policy := range map[string]string{"one rule": oneRule, "five rules": fiveRules} {
		file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".yaml")
		if err := os.WriteFile(file, []byte(policy), 0o644); err != nil {
			return all, err
		}
		commands[name] = []string{program, "serve", file, "--listen", "127.0.0.1:0", "--upstream", "http://" + nginx.Addr}
	}
	for name, command := range commands {
		if all[name], err = server.Start(command[0], command[1:]...); err != nil {
			return all, fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, nil
}

// whole measures the pairs.
func whole(all map[string]*server.Server, pairs, seconds int) (claims []report.Claim, err error) {
	costs := map[string][]float64{}
	for range pairs {
		for _, name := range contestants {
			cost, err := load(all[name], seconds, name == "refusing")
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			costs[name] = append(costs[name], cost)
		}
	}
	fmt.Printf("processor time a request, 64 connections, one core for the server, %d pairs of %d s\n\n", pairs, seconds)
	rows := [][]string{{"", "median", "from", "to"}}
	row := func(name, format string, v []float64) {
		rows = append(rows, []string{name, fmt.Sprintf(format, report.Median(v)), fmt.Sprintf(format, slices.Min(v)), fmt.Sprintf(format, slices.Max(v))})
	}
	for _, name := range contestants {
		row(name+", µs", "%.1f", costs[name])
	}
	for _, r := range ratios {
		var each []float64
		for i := range costs[r.over] {
			each = append(each, costs[r.over][i]/costs[r.under][i])
		}
		row(r.what, "%.2f", each)
		claims = append(claims, report.Claim{What: r.what, Got: report.Median(each), Goal: r.goal, Fail: r.fail})
	}
	report.Table(os.Stdout, rows)
	return claims, nil
}

var benchLine = regexp.MustCompile(`(?m)^BenchmarkOverhead/(\S+?)(?:-\d+)?\s.*?([\d.]+) cpu-ns/op`)

// overhead runs the benchmark of the gateway's handler, which only a test of
// its own module can reach, and claims what one rule adds to the bare proxy.
func overhead(dir string, rounds int) (c report.Claim, err error) {
	program := filepath.Join(dir, "overhead.test")
	if out, err := exec.Command("go", "test", "-c", "-o", program, "github.com/spillgate/spillgate/cmd/spillgate/internal/gateway").CombinedOutput(); err != nil {
		return c, fmt.Errorf("go test -c: %w\n%s", err, out)
	}
	best := map[string]float64{} // a disturbance only ever adds
	for range rounds {
		out, err := exec.Command(program, "-test.run", "^$", "-test.bench", "^BenchmarkOverhead$", "-test.benchtime", "20000x").CombinedOutput()
		if err != nil {
			return c, fmt.Errorf("the benchmark: %w\n%s", err, out)
		}
		for _, m := range benchLine.FindAllStringSubmatch(string(out), -1) {
			ns, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				return c, err
			}
			if old, ok := best[m[1]]; !ok || ns < old {
				best[m[1]] = ns
			}
		}
	}
	fmt.Printf("\nthe handler alone, without a network: processor time, the least of %d rounds\n\n", rounds)
	rows := [][]string{{"", "ns"}}
	for _, name := range []string{"bare", "one-rule", "five-rules-and-fields"} {
		ns, ok := best[name]
		if !ok {
			return c, fmt.Errorf("the benchmark has no result of %s", name)
		}
		rows = append(rows, []string{name, fmt.Sprintf("%.0f", ns)})
	}
	report.Table(os.Stdout, rows)
	return report.Claim{What: "one rule over the bare proxy, µs", Got: (best["one-rule"] - best["bare"]) / 1000, Goal: 1, Fail: 6}, nil
}
