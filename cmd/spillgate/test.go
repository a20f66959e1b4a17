package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/policyfile"
)

type testFlags struct {
	run                  string
	asJSON, loud, update bool
}

func testCommand() *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test POLICY.yaml...",
		Short: "Play the tests of policy files in virtual time",
		Long: `Test plays the scenarios under "tests:" of policy files: requests at given times,
and what must be said of each. Time is virtual, so a day takes no time. What came
otherwise is printed as file:line:column with the line.

With --update what came is written into the files, in the place of what was
expected; requests that expect nothing get all that came. Look at the difference
before you keep it. Comments stay.

A file with errors does not keep the others from being played.

Exit codes: 0 all tests passed; 1 one failed, or a file has errors; 2 the command
line is wrong, a file can't be read, or there is no test to play.`,
		Example: `  spillgate test limits.yaml
  spillgate test -v --run 'login' limits.yaml
  spillgate test --update limits.yaml && git diff limits.yaml
  spillgate test --json policies/*.yaml | jq '.[].tests[] | select(.ok | not)'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("test wants policy files, got none: %s", cmd.UseLine())
			}
			return filled(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return test(args, f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&f.run, "run", "", "play only the tests whose name this regular expression finds")
	cmd.Flags().BoolVarP(&f.loud, "verbose", "v", false, "print each request and what came")
	cmd.Flags().BoolVar(&f.update, "update", false, "write what came into the files")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON array for programs")
	return cmd
}

// testedFile is what `test --json` prints of a file.
type testedFile struct {
	File   string         `json:"file"`
	OK     bool           `json:"ok"`
	Tests  []testedTest   `json:"tests"`
	Errors []checkedError `json:"errors,omitempty"` // of the file: nothing of it was played
}

type testedTest struct {
	Name     string         `json:"name"`
	Source   string         `json:"source"`
	OK       bool           `json:"ok"`
	Requests []testedStep   `json:"requests"`
	Failures []checkedError `json:"failures,omitempty"`
}

type testedStep struct {
	Line    int     `json:"line"`
	After   float64 `json:"after"` // seconds since the start
	Times   int     `json:"times"`
	Request string  `json:"request"`
	Answer  string  `json:"answer"`
}

func test(paths []string, f testFlags, stdout, stderr io.Writer) error {
	pick, err := regexp.Compile(f.run)
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("--run: %w", err)}
	}
	chosen := func(t *policyfile.Test) bool { return pick.MatchString(t.Name) }
	var all []testedFile
	ok, played := true, 0
	for _, path := range paths {
		if f.update {
			if err := rewrite(path, chosen, stdout, stderr); err != nil {
				return err
			}
		}
		file, data, err := parse(path)
		var errs policyfile.Errors
		switch {
		case errors.As(err, &errs):
			ok = false
			all = append(all, testedFile{File: path, Tests: []testedTest{}, Errors: errorsJSON(errs)})
			if !f.asJSON {
				if err := errs.Report(stderr, data); err != nil {
					return &exitError{exitUsage, err}
				}
			}
			continue
		case err != nil:
			return err
		}
		out := testedFile{File: path, OK: true, Tests: []testedTest{}}
		for _, t := range file.Tests {
			if !chosen(t) {
				continue
			}
			played++
			r := t.Run()
			one := testedTest{Name: t.Name, Source: t.Source, OK: len(r.Failures) == 0}
			for _, s := range r.Steps {
				one.Requests = append(one.Requests, testedStep{s.Line, s.After.Seconds(), s.Times, s.Request, s.Answer})
			}
			one.Failures = errorsJSON(r.Failures)
			out.OK = out.OK && one.OK
			out.Tests = append(out.Tests, one)
			if !f.asJSON {
				if err := report(stdout, t, r, data, f.loud); err != nil {
					return &exitError{exitUsage, err}
				}
			}
		}
		ok = ok && out.OK
		all = append(all, out)
	}
	if f.asJSON {
		if err := printJSON(stdout, all); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	if played == 0 && ok {
		if f.run != "" {
			return &exitError{exitUsage, fmt.Errorf("--run %s: finds no test", f.run)}
		}
		return &exitError{exitUsage, fmt.Errorf("no tests in %s; write them under \"tests:\"", strings.Join(paths, ", "))}
	}
	if !f.asJSON {
		failed, broken := 0, 0
		for _, file := range all {
			if file.Errors != nil {
				broken++
			}
			for _, t := range file.Tests {
				if !t.OK {
					failed++
				}
			}
		}
		var faults []string
		if failed > 0 {
			faults = append(faults, fmt.Sprintf("%d of %s", failed, plural(played, "test")))
		}
		if broken > 0 {
			faults = append(faults, plural(broken, "file")+" with errors")
		}
		if len(faults) > 0 {
			fmt.Fprintf(stdout, "FAIL: %s\n", strings.Join(faults, ", "))
		} else {
			fmt.Fprintf(stdout, "OK, %s\n", plural(played, "test"))
		}
	}
	if !ok {
		return &exitError{exitPolicy, nil}
	}
	return nil
}

func errorsJSON(errs policyfile.Errors) (out []checkedError) {
	for _, e := range errs {
		out = append(out, checkedError{e.Line, e.Column, e.Msg, e.Fix})
	}
	return out
}

// rewrite writes what comes of the tests of a file into it.
func rewrite(path string, chosen func(*policyfile.Test) bool, stdout, stderr io.Writer) error {
	_, data, err := parse(path)
	if data == nil {
		return err
	}
	text, n, err := policyfile.RewriteFS(os.DirFS(filepath.Dir(path)), path, data, chosen)
	var errs policyfile.Errors
	switch {
	case errors.As(err, &errs):
		if err := errs.Report(stderr, data); err != nil {
			return &exitError{exitUsage, err}
		}
		return &exitError{exitPolicy, fmt.Errorf("%s was left alone", path)}
	case err != nil:
		return &exitError{exitUsage, err}
	case n == 0:
		return nil
	}
	if err := os.WriteFile(path, text, 0o644); err != nil { // keeps the mode of the file that is there
		return &exitError{exitUsage, err}
	}
	fmt.Fprintf(stdout, "%s: rewrote %s\n", path, plural(n, "expectation"))
	return nil
}

// report prints what came of one test.
func report(w io.Writer, t *policyfile.Test, r *policyfile.TestResult, data []byte, loud bool) error {
	word := "ok  "
	if len(r.Failures) > 0 {
		word = "FAIL"
	}
	if loud || len(r.Failures) > 0 {
		fmt.Fprintf(w, "%s  %s  %s\n", word, t.Source, t.Name)
	}
	if loud {
		tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, s := range r.Steps {
			request := s.Request
			if s.Times > 1 {
				request = fmt.Sprintf("%d× %s", s.Times, request)
			}
			fmt.Fprintf(tab, "      %s\t%s\t%s\n", s.After, request, s.Answer)
		}
		if err := tab.Flush(); err != nil {
			return err
		}
	}
	if len(r.Failures) > 0 {
		fmt.Fprintln(w)
		if err := r.Failures.Report(w, data); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	return nil
}
