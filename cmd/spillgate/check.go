package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// load reads a policy file. Errors in it are printed to stderr with their
// place, excerpt and fix.
func load(path string, stderr io.Writer) (*policyfile.File, error) {
	f, data, err := parse(path)
	var errs policyfile.Errors
	if !errors.As(err, &errs) {
		return f, err
	}
	if err := errs.Report(stderr, data); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return nil, &exitError{exitPolicy, nil}
}

// parse reads a policy file. The error is [policyfile.Errors] or an exitError.
func parse(path string) (f *policyfile.File, data []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, &exitError{exitUsage, err}
	}
	defer file.Close()
	// One byte more than allowed is enough for Parse to refuse the file.
	data, err = io.ReadAll(io.LimitReader(file, policyfile.MaxSize+1))
	if err != nil {
		return nil, nil, &exitError{exitUsage, err}
	}
	f, err = policyfile.Parse(path, data)
	return f, data, err
}

func checkCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check POLICY.yaml",
		Short: "Say what a policy file means, or everything that is wrong with it",
		Long: `Check reads a policy file and prints a summary of its rules, or every error as
file:line:column with the line and the fix.

Exit codes: 0 the file is right; 1 it has errors; 2 it can't be read.`,
		Example: "  spillgate check limits.yaml\n  spillgate check --json limits.yaml | jq .rules",
		Args:    onePolicy,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !asJSON {
				f, err := load(args[0], cmd.ErrOrStderr())
				if err != nil {
					return err
				}
				return summarise(cmd.OutOrStdout(), args[0], f)
			}
			return checkJSON(cmd.OutOrStdout(), args[0])
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object for programs")
	return cmd
}

// onePolicy wants exactly one argument.
func onePolicy(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s wants one policy file, got %d: %s", cmd.Name(), len(args), cmd.UseLine())
	}
	return nil
}

func summarise(w io.Writer, path string, f *policyfile.File) error {
	rules := f.Policy.Rules()
	fmt.Fprintf(w, "%s: OK, %s\n\n", path, plural(len(rules), "rule"))
	var table bytes.Buffer
	t := tabwriter.NewWriter(&table, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "  RULE\tREQUESTS\tEACH\tLIMIT\tKEYS")
	for i := range rules {
		r := &rules[i]
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", r.Name, requests(r.Match), each(r.Key), limitText(r), keysText(r))
		if len(r.Peek) > 0 {
			fmt.Fprintf(t, "  \tasks only: %s\t\t\t\n", requests(r.Peek))
		}
	}
	t.Flush() // into memory
	for line := range strings.Lines(table.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
	if f.Server.Upstream != "" {
		fmt.Fprintf(w, "\n  serves %s in front of %s\n", f.Server.Listen, f.Server.Upstream)
	}
	return nil
}

func requests(m policy.Match) string {
	if len(m) == 0 {
		return "all"
	}
	var parts []string
	for _, c := range m {
		parts = append(parts, c.Attribute.String()+" "+strings.Join(c.Values, "|"))
	}
	return strings.Join(parts, ", ")
}

func each(key []policy.Part) string {
	if len(key) == 0 {
		return "all together"
	}
	var parts []string
	for _, p := range key {
		parts = append(parts, p.String())
	}
	return strings.Join(parts, " + ")
}

func limitText(r *policy.Rule) string {
	if r.Deny {
		return "denied"
	}
	s := r.Limit.String()
	if r.Cost > 1 {
		s += fmt.Sprintf(", costs %d", r.Cost)
	}
	if len(r.Failures) > 0 {
		s += ", only " + strings.Join(r.Failures, " ") + " count"
	}
	if r.Spare > 0 {
		s += fmt.Sprintf(", enforced for %d %%", 100-r.Spare)
	}
	return s
}

func keysText(r *policy.Rule) string {
	if r.Deny {
		return "none"
	}
	if len(r.Key) == 0 {
		return "1"
	}
	o := r.Table()
	s := fmt.Sprintf("%d", o.MaxKeys)
	if o.TTL > 0 {
		s += ", forgotten after " + o.TTL.String()
	}
	return s
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// checked is what `check --json` prints.
type checked struct {
	File   string         `json:"file"`
	OK     bool           `json:"ok"`
	Rules  []checkedRule  `json:"rules,omitempty"`
	Errors []checkedError `json:"errors,omitempty"`
}

type checkedRule struct {
	Name     string   `json:"name"`
	Source   string   `json:"source"`
	Requests string   `json:"requests"`
	Peek     string   `json:"peek,omitempty"`
	Key      []string `json:"key"`
	Limit    string   `json:"limit"`
	MaxKeys  int      `json:"max_keys"`
}

type checkedError struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

func checkJSON(w io.Writer, path string) error {
	out := checked{File: path, OK: true}
	f, _, err := parse(path)
	var errs policyfile.Errors
	switch {
	case errors.As(err, &errs):
		out.OK = false
		for _, e := range errs {
			out.Errors = append(out.Errors, checkedError{e.Line, e.Column, e.Msg, e.Fix})
		}
	case err != nil:
		return err
	default:
		for i := range f.Policy.Rules() {
			r := &f.Policy.Rules()[i]
			c := checkedRule{Name: r.Name, Source: r.Source, Requests: requests(r.Match), Key: []string{}, Limit: limitText(r), MaxKeys: r.Table().MaxKeys}
			if len(r.Peek) > 0 {
				c.Peek = requests(r.Peek)
			}
			for _, p := range r.Key {
				c.Key = append(c.Key, p.String())
			}
			out.Rules = append(out.Rules, c)
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return &exitError{exitUsage, err}
	}
	if !out.OK {
		return &exitError{exitPolicy, nil}
	}
	return nil
}

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of policy files, for editors",
		Example: "  spillgate schema > spillgate.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(policyfile.Schema())
			return err
		},
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  spillgate version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version := "(devel)"
			if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
				version = info.Main.Version
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "spillgate %s\n", version)
			return err
		},
	}
}
