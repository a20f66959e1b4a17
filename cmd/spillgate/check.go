package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/policyfile"
)

// load reads a policy file, for the gateway or for whoever it is for, and
// returns its text beside. Errors in it are printed to stderr with their place,
// excerpt and fix.
func load(path string, forGateway bool, stderr io.Writer) (f *policyfile.File, data []byte, err error) {
	f, data, err = parse(path)
	if err == nil && forGateway {
		err = f.BeyondGateway()
	}
	var errs policyfile.Errors
	if !errors.As(err, &errs) {
		return f, data, err
	}
	if err := errs.Report(stderr, data); err != nil {
		return nil, nil, &exitError{exitUsage, err}
	}
	return nil, nil, &exitError{exitPolicy, nil}
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
	f, err = policyfile.ParseFS(os.DirFS(filepath.Dir(path)), path, data)
	return f, data, err
}

func checkCommand() *cobra.Command {
	var asJSON, strict bool
	var allow []string
	cmd := &cobra.Command{
		Use:   "check POLICY.yaml",
		Short: "Say what a policy file means, or everything that is wrong with it",
		Long: `Check reads a policy file and prints a summary of its rules, or its errors as
file:line:column with the line and the fix: all at once, but for those that hang on
a part that is wrong itself. With --json each key of a rule is a value of its own,
also those that the file leaves out.

What a file can hardly mean is a warning: rules that never decide, bursts of many
times the rate, keys that anybody makes up. With --strict a warning fails the check,
unless its code is among those of --allow. The codes stand in brackets.

Exit codes: 0 the file is right; 1 it has errors, or, with --strict, warnings; 2 it
can't be read.`,
		Example: `  spillgate check limits.yaml
  spillgate check --json limits.yaml | jq .rules
  spillgate check --strict --allow burst limits.yaml`,
		Args: onePolicy,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strict && len(allow) > 0 {
				return &exitError{exitUsage, errors.New("--allow is for --strict: without it a warning fails nothing")}
			}
			for _, code := range allow {
				if known := policyfile.WarningCodes(); !slices.Contains(known, code) {
					return &exitError{exitUsage, fmt.Errorf("--allow %s: no such code; known are %s", code, strings.Join(known, ", "))}
				}
			}
			var f *policyfile.File
			var err error
			if asJSON {
				f, err = checkJSON(cmd.OutOrStdout(), args[0])
			} else {
				f, err = checkText(cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
			}
			if err != nil || !strict {
				return err
			}
			return accepted(f, allow)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object for programs")
	cmd.Flags().BoolVar(&strict, "strict", false, "fail if there is a warning")
	cmd.Flags().StringSliceVar(&allow, "allow", nil, "codes of warnings that do not fail --strict, such as burst")
	return cmd
}

// checkText says for people what a file means.
func checkText(stdout, stderr io.Writer, path string) (*policyfile.File, error) {
	f, data, err := load(path, false, stderr)
	if err != nil {
		return nil, err
	}
	if err := summarise(stdout, path, f); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	var all policyfile.Errors
	for _, w := range f.Warnings {
		e := w.Error
		e.Msg = fmt.Sprintf("warning: %s [%s]", w.Msg, w.Code)
		all = append(all, &e)
	}
	if len(all) > 0 {
		fmt.Fprintln(stdout)
	}
	if err := all.Report(stdout, data); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return f, nil
}

// printJSON prints v for programs.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// accepted fails if a file has warnings that are not allowed.
func accepted(f *policyfile.File, allow []string) error {
	n := 0
	for _, w := range f.Warnings {
		if !slices.Contains(allow, w.Code) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return &exitError{exitPolicy, fmt.Errorf("%s: %s that --strict does not allow", f.Name, plural(n, "warning"))}
}

// onePolicy wants exactly one argument.
func onePolicy(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s wants one policy file, got %d: %s", cmd.Name(), len(args), cmd.UseLine())
	}
	return filled(cmd, args)
}

// filled wants arguments that name something: an empty one is a variable of a
// shell that was not set.
func filled(cmd *cobra.Command, args []string) error {
	if slices.Contains(args, "") {
		return fmt.Errorf("%s: the name of a policy file is empty: %s", cmd.Name(), cmd.UseLine())
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
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "spillgate %s\n", version())
			return err
		},
	}
}

// version returns the module's version, as the build knows it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
