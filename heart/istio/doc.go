// Package istio puts routing tables into force through Istio. Router is a
// heart.Router that writes, for each called component, a DestinationRule whose
// subsets are the callee groups and a VirtualService whose routes are chosen
// by the caller's labels; istiod turns them into the configuration of the
// proxies and of proxyless gRPC clients.
//
//	heart.RoutingTable -> objects (build.go, locality.go)
//	  -> plan: owners, dry run, diff (plan.go) -> server-side apply (router.go)
//
// Groups are told apart by two labels that the router keeps on the pods: the
// node and the name of the pod. They are its own because a pod has no label
// of its node by default, and Istio's own node label came only with late
// releases.
//
// The client that writes is client-go's dynamic one and the few fields that are written
// are structs of this package: Istio's typed client brings the types of all
// of Istio and needs another release of the Kubernetes libraries.
package istio
