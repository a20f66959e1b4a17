package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/policyfile"
)

// load reads a policy file, for the gateway or for whoever it is for. Errors in
// it are printed to stderr with their place, excerpt and fix.
func load(path string, forGateway bool, stderr io.Writer) (*policyfile.File, error) {
	f, data, err := parse(path)
	if err == nil && forGateway {
		err = f.BeyondGateway()
	}
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
	f, err = policyfile.ParseFS(os.DirFS(filepath.Dir(path)), path, data)
	return f, data, err
}

func checkCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check POLICY.yaml",
		Short: "Say what a policy file means, or everything that is wrong with it",
		Long: `Check reads a policy file and prints a summary of its rules, or every error as
file:line:column with the line and the fix. With --json each key of a rule is a
value of its own, also those that the file leaves out.

Exit codes: 0 the file is right; 1 it has errors; 2 it can't be read.`,
		Example: "  spillgate check limits.yaml\n  spillgate check --json limits.yaml | jq .rules",
		Args:    onePolicy,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !asJSON {
				f, err := load(args[0], false, cmd.ErrOrStderr())
				if err != nil {
					return err
				}
				if err := summarise(cmd.OutOrStdout(), args[0], f); err != nil {
					return &exitError{exitUsage, err}
				}
				return nil
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
