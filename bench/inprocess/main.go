// Command inprocess measures limiters inside one process, side by side in one run:
// what this repository publishes, the libraries that others publish, each as
// its users would use it, and floors that show what cannot be beaten.
//
//	go run ./bench/inprocess [-short] [-only REGEXP] [-skip PHASES] [-rounds N] [-keys N]
//
// Nanoseconds don't carry over to another machine, ratios do. So contestants
// take turns round by round, a row that does nothing ("null") is measured
// before and after each measurement and voids it when a core was stolen, the
// median of the rounds counts, and the run fails (exit code 1) when a named
// ratio is off by a factor (with -short, only one of bytes or of keys).
//
// Missing here are clipperhouse/rate and webriots/rate, which the Go module
// proxy does not serve, mennanov/limiters, which brings 160 modules along (AWS,
// Consul, etcd, PostgreSQL, ZooKeeper, ...), and tailscale's util/limiter, which
// needs a newer Go than this repository.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// full is what `make bench` measures, the decisions alone in sixteen minutes;
// brief is for every commit: the ratios that matter, in a minute and a half.
var (
	full  = scale{rounds: 5, hot: 1e6, known: 1e6, draws: 5e5, fresh: 1e6, tries: 10, restless: 3, looks: 10}
	brief = scale{rounds: 3, hot: 1.5e5, known: 1e6, draws: 2e5, fresh: 3e5, tries: 2, restless: 2, looks: 2}
)

// A phase is a part of the run; its name can be given to -skip.
type phase struct {
	name  string
	brief []string // whom -short measures besides the null row
	run   func(*results, []contestant, *streams) error
}

var phases = []phase{
	{"hot", []string{clockSip, leastSip, xtimeSingle, mutexMap, sethvargo, ourAllow, ourOne, ourThree, ourRate}, (*results).runHot},
	{"keyed", []string{allThree, leastSip, mutexMap, sethvargo, ourAllow}, (*results).runKeyed},
	{"memory", []string{leastSip, mutexMap, ourAllow}, (*results).runMemory},
	{"slowest", []string{mutexSweep, sethvargo, ourAllow}, (*results).runSlowest},
	{"state", []string{ourAllow}, (*results).runState},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	short := flag.Bool("short", false, "measure less, in a minute and a half")
	only := flag.String("only", "", "measure only contestants whose `name` matches (regexp); the null row and the least table always are")
	skip := flag.String("skip", "", "leave out `phases`, separated by commas: "+strings.Join(names(), ", "))
	rounds := flag.Int("rounds", 0, "measure so many `rounds` instead of the usual number")
	keys := flag.Int("keys", 0, "know so many `keys` instead of a million, draw and flood in proportion; no ratio is judged")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("bench: unexpected argument %q: flags only, see -help", flag.Arg(0))
	}

	size := full
	if *short {
		size = brief
	}
	if *rounds < 0 {
		return fmt.Errorf("bench: -rounds %d: give 1 or more", *rounds)
	} else if *rounds > 0 {
		size.rounds = *rounds
	}
	if *keys != 0 {
		if *keys < 1000 {
			return fmt.Errorf("bench: -keys %d: give 1000 or more", *keys)
		}
		part := float64(*keys) / float64(size.known)
		size.known, size.draws, size.fresh = *keys, int(part*float64(size.draws)), int(part*float64(size.fresh))
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("bench: -only: %w", err)
	}
	var skipped []string
	if *skip != "" {
		skipped = strings.Split(*skip, ",")
	}
	for _, s := range skipped {
		if !slices.Contains(names(), s) {
			return fmt.Errorf("bench: -skip %q: no such phase, there are %s", s, strings.Join(names(), ", "))
		}
	}
	if runtime.GOMAXPROCS(0) < cores {
		return fmt.Errorf("bench: %d cores needed, %d there: nothing here holds on fewer", cores, runtime.GOMAXPROCS(0))
	}

	all := slices.DeleteFunc(lineup(), func(c contestant) bool {
		return c.name != nullName && c.name != leastSip && !match.MatchString(c.name)
	})
	r, err := measureAll(size, all, *short, skipped)
	if err != nil {
		return err
	}
	r.report(os.Stdout, all)
	if *keys != 0 {
		return nil // the ratios are claims about a million keys
	}
	ratios := append(harnessRatios(), ourRatios()...)
	if *short {
		ratios = slices.DeleteFunc(ratios, func(q ratio) bool { return q.long })
	}
	return r.judge(os.Stdout, ratios, *only != "" || len(skipped) > 0, !*short)
}

// measureAll runs the phases that are not skipped, and tells on standard
// error how far it is.
func measureAll(size scale, all []contestant, short bool, skipped []string) (*results, error) {
	r := &results{
		scale:   size,
		watch:   newWatch(size.tries),
		samples: map[cell][]sample{},
		memory:  map[string]footprint{},
		slowest: map[string][]slow{},
		state:   map[string]state{},
	}
	keys := newStreams(size.known, size.draws, size.fresh)
	for _, p := range phases {
		if slices.Contains(skipped, p.name) {
			continue
		}
		var some []contestant
		for _, c := range all {
			if !short || c.name == nullName || slices.Contains(p.brief, c.name) {
				some = append(some, c)
			}
		}
		began := time.Now()
		fmt.Fprintf(os.Stderr, "bench: %s … ", p.name)
		if err := p.run(r, some, keys); err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "%.0f s\n", time.Since(began).Seconds())
	}
	return r, nil
}

// names lists the phases' names.
func names() (list []string) {
	for _, p := range phases {
		list = append(list, p.name)
	}
	return list
}
