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
