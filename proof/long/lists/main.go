// Command lists runs what the tests do in small at full length: the exhaustive
// small scope to depth 5, every change of limit in it, a million random lists
// for each algorithm against the oracle, each property and history of goroutines
// many times, twenty thousand seeds of the simulation, and minutes of what
// happens to a real Redis. Lists come in parts, each a process: a process makes
// 4,194,303 different limits at the most.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

var (
	lists = flag.Int("lists", 1_000_000, "random lists for each algorithm")
	first = flag.Int("first", 1_000_000, "seed of the first list")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "lists:", err)
		os.Exit(1)
	}
}

func run() error {
	const part = 100_000
	for at := 0; at < *lists; at += part {
		err := test("./proof/exact", "-run", "TestRandomLists", "-lists", strconv.Itoa(min(part, *lists-at)), "-first", strconv.Itoa(*first+at))
		if err != nil {
			return err
		}
	}
	for _, arguments := range [][]string{
		{"./proof/exact", "-run", "Small", "-depth", "5"},
		{"./proof/promises", "-rapid.checks", "30000"},
		{"./proof/waiting", "-rapid.checks", "20000"},
		{"-race", "./proof/concurrent", "-histories", "500"},
		{"./proof/simulation", "-run", "TestSeeds", "-first", "100000", "-seeds", "20000"},
		{"./proof/nemesis", "-length", "3m"},
	} {
		if err := test(arguments...); err != nil {
			return err
		}
	}
	return nil
}

func test(arguments ...string) error {
	command := exec.Command("go", append([]string{"test", "-count=1", "-timeout", "2h"}, arguments...)...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	fmt.Println(command.Args)
	return command.Run()
}
