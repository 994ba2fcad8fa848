module github.com/hostfacts/hostfacts/infra/house

go 1.26.0

require (
	github.com/alecthomas/chroma/v2 v2.27.0
	github.com/google/go-cmp v0.7.0
	github.com/pelletier/go-toml/v2 v2.2.4
	github.com/tdewolff/minify/v2 v2.24.25
	github.com/uudashr/gocognit v1.3.0
	go.yaml.in/yaml/v3 v3.0.6
	golang.org/x/image v0.48.0
	golang.org/x/tools v0.52.0
)

require (
	github.com/dlclark/regexp2/v2 v2.2.1 // indirect
	github.com/tdewolff/parse/v2 v2.8.20 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)
