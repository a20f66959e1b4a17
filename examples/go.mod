module github.com/spillgate/spillgate/examples

go 1.26.0

require (
	github.com/spillgate/spillgate v0.0.0
	github.com/spillgate/spillgate/policyfile v0.0.0
)

require go.yaml.in/yaml/v4 v4.0.0 // indirect
