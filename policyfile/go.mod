module github.com/spillgate/spillgate/policyfile

go 1.26.0

require (
	github.com/spillgate/spillgate v0.0.0
	go.yaml.in/yaml/v4 v4.0.0
)
