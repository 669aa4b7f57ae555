package xds

import (
	"encoding/json"
	"fmt"
	"net/url"
)

// BootstrapEnv is the environment variable a gRPC client reads its bootstrap
// from. It is read when the process starts (gRFC A27), so that whoever starts
// the process must set it.
const BootstrapEnv = "GRPC_XDS_BOOTSTRAP_CONFIG"

// Target is what a caller dials to reach a component.
func Target(component string) string { return "xds:///" + url.PathEscape(component) }

// Bootstrap is the gRPC bootstrap configuration (JSON) of the caller replica:
// it asks the server at address, "host:port", for its routes. The feature
// ignore_resource_deletion keeps the last table when a server no longer names
// a resource (gRFC A53).
func Bootstrap(address, replica string) ([]byte, error) {
	type object = map[string]any
	raw, err := json.Marshal(object{
		"xds_servers": []object{{
			"server_uri":      address,
			"channel_creds":   []object{{"type": "insecure"}},
			"server_features": []string{"xds_v3", "ignore_resource_deletion"},
		}},
		"node": object{"id": replica},
	})
	if err != nil {
		return nil, fmt.Errorf("bootstrap of replica %q: %w", replica, err)
	}
	return raw, nil
}
