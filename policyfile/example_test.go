package policyfile_test

import (
	"errors"
	"fmt"
	"os"

	"github.com/spillgate/spillgate/policyfile"
)

func ExampleParse() {
	f, err := policyfile.Parse("limits.yaml", []byte(`
rules:
  - name: everybody
    key: client.ip
    limit: 10/s burst 20
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	r := f.Policy.Rules()[0]
	fmt.Println(r.Source, r.Name, r.Limit)
	// Output: limits.yaml:3 everybody 10/s burst 20
}

func ExampleErrors_Report() {
	text := []byte("rules:\n  - name: everybody\n    limt: 10/s\n")
	_, err := policyfile.Parse("limits.yaml", text)
	var errs policyfile.Errors
	if errors.As(err, &errs) {
		errs.Report(os.Stdout, text)
	}
	// Output:
	// limits.yaml:3:5: unknown key "limt" in a rule
	//     3 |     limt: 10/s
	//       |     ^
	//       | fix: did you mean "limit"?
}

func ExampleFile_TestAll() {
	f, err := policyfile.Parse("limits.yaml", []byte(`
rules:
  - name: login
    key: client.ip
    limit: 1/10s burst 3
tests:
  - name: the fourth is refused
    with: {client.ip: 203.0.113.7}
    requests:
      - {times: 3, expect: allowed}
      - {expect: {denied: login, retry_after: 9s}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(f.TestAll())
	// Output: limits.yaml:11:47: test "the fourth is refused": at 0s: want retry after 9s; got 10s
}
