module github.com/spillgate/spillgate/policyfile

go 1.26.0
