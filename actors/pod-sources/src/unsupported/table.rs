//! The table of supported fields.

use std::collections::BTreeMap;

use super::{Rule, Supported};

const YES: Rule = Rule::Yes;
const NOT_OURS: Rule = Rule::NotOurs;
const WITHIN: Rule = Rule::Within;

/// The pod as a whole.
const POD: &[(&str, Rule)] = &[
    ("apiVersion", YES),
    ("kind", YES),
    ("metadata", WITHIN),
    ("metadata.name", YES),
    ("metadata.namespace", YES),
    ("metadata.uid", YES),
    ("metadata.labels", YES),
    ("metadata.annotations", YES),
    // Bookkeeping of the API server and of controllers.
    ("metadata.creationTimestamp", NOT_OURS),
    ("metadata.deletionTimestamp", YES),
    ("metadata.deletionGracePeriodSeconds", YES),
    ("metadata.finalizers", NOT_OURS),
    ("metadata.generateName", NOT_OURS),
    ("metadata.generation", NOT_OURS),
    ("metadata.managedFields", NOT_OURS),
    ("metadata.ownerReferences", NOT_OURS),
    ("metadata.resourceVersion", NOT_OURS),
    ("metadata.selfLink", NOT_OURS),
    // The status was observed and asks for nothing.
    ("status", NOT_OURS),
    ("spec", WITHIN),
    ("spec.restartPolicy", YES),
    ("spec.activeDeadlineSeconds", YES),
    ("spec.readinessGates", YES),
    ("spec.terminationGracePeriodSeconds", YES),
    ("spec.hostNetwork", YES),
    ("spec.hostPID", YES),
    ("spec.hostIPC", YES),
    ("spec.hostUsers", Rule::Only(&["true"])),
    ("spec.shareProcessNamespace", YES),
    ("spec.dnsPolicy", YES),
    ("spec.dnsConfig", YES),
    ("spec.hostAliases", YES),
    ("spec.hostname", YES),
    ("spec.hostnameOverride", YES),
    ("spec.subdomain", YES),
    ("spec.setHostnameAsFQDN", YES),
    ("spec.os", YES),
    ("spec.nodeName", YES),
    ("spec.resources", WITHIN),
    ("spec.resources.requests", YES),
    ("spec.resources.limits", YES),
    ("spec.overhead", YES),
    ("spec.runtimeClassName", YES),
    ("spec.securityContext", WITHIN),
    ("spec.securityContext.runAsUser", YES),
    ("spec.securityContext.runAsGroup", YES),
    ("spec.securityContext.runAsNonRoot", YES),
    ("spec.securityContext.fsGroup", YES),
    ("spec.securityContext.fsGroupChangePolicy", YES),
    ("spec.securityContext.supplementalGroups", YES),
    ("spec.securityContext.supplementalGroupsPolicy", YES),
    ("spec.securityContext.seccompProfile", YES),
    ("spec.securityContext.appArmorProfile", YES),
    ("spec.securityContext.seLinuxOptions", YES),
    ("spec.securityContext.seLinuxChangePolicy", YES),
    ("spec.securityContext.sysctls", YES),
    // A static pod has no service account, hence no token to mount; of pods of the API server the API server has done what
    // it says.
    ("spec.automountServiceAccountToken", NOT_OURS),
    // PodWorker reads it. Without an API server no services are known, and there are no variables of services.
    ("spec.enableServiceLinks", YES),
    // Admission checks these.
    ("spec.affinity", YES),
    ("spec.nodeSelector", YES),
    ("spec.priority", YES),
    ("spec.priorityClassName", YES),
    ("spec.tolerations", YES),
    // The scheduler's. A static pod has no scheduler: it runs on the node that has its file.
    ("spec.preemptionPolicy", NOT_OURS),
    ("spec.schedulerName", NOT_OURS),
    ("spec.topologySpreadConstraints", NOT_OURS),
    ("spec.containers", WITHIN),
    ("spec.initContainers", WITHIN),
    ("spec.volumes", WITHIN),
    ("spec.volumes.name", YES),
    ("spec.volumes.emptyDir", WITHIN),
    ("spec.volumes.emptyDir.medium", YES),
    ("spec.volumes.emptyDir.sizeLimit", YES),
    ("spec.volumes.hostPath", YES),
    ("spec.volumes.fc", YES),
    ("spec.volumes.flexVolume", YES),
    ("spec.volumes.iscsi", YES),
    ("spec.volumes.nfs", YES),
    ("spec.volumes.image", YES),
    // What is about the pod itself needs no other object.
    ("spec.volumes.downwardAPI", YES),
    ("spec.volumes.projected", WITHIN),
    ("spec.volumes.projected.defaultMode", YES),
    ("spec.volumes.projected.sources", WITHIN),
    ("spec.volumes.projected.sources.downwardAPI", YES),
];

/// Fields of every container, regular or init.
const CONTAINER: &[(&str, Rule)] = &[
    ("name", YES),
    ("image", YES),
    ("imagePullPolicy", YES),
    ("command", YES),
    ("args", YES),
    ("workingDir", YES),
    ("env", WITHIN),
    ("env.name", YES),
    ("env.value", YES),
    ("env.valueFrom", WITHIN),
    ("env.valueFrom.fieldRef", YES),
    ("env.valueFrom.resourceFieldRef", YES),
    ("env.valueFrom.fileKeyRef", YES),
    ("ports", YES),
    ("volumeMounts", WITHIN),
    ("volumeMounts.name", YES),
    ("volumeMounts.mountPath", YES),
    ("volumeMounts.mountPropagation", Rule::Only(&["None", "HostToContainer", "Bidirectional"])),
    ("volumeMounts.readOnly", YES),
    ("volumeMounts.recursiveReadOnly", YES),
    ("volumeMounts.subPath", YES),
    ("volumeMounts.subPathExpr", YES),
    ("terminationMessagePath", YES),
    ("resources", WITHIN),
    ("resources.requests", YES),
    ("resources.limits", YES),
    ("resources.claims", Rule::Empty),
    ("securityContext", WITHIN),
    ("securityContext.runAsUser", YES),
    ("securityContext.runAsGroup", YES),
    ("securityContext.runAsNonRoot", YES),
    ("securityContext.privileged", YES),
    ("securityContext.capabilities", YES),
    ("securityContext.allowPrivilegeEscalation", YES),
    ("securityContext.readOnlyRootFilesystem", YES),
    ("securityContext.procMount", YES),
    ("securityContext.seccompProfile", YES),
    ("securityContext.appArmorProfile", YES),
    ("securityContext.seLinuxOptions", YES),
    ("lifecycle", WITHIN),
    // A stop signal counts while ContainerStopSignals is on, and is ignored otherwise, as upstream.
    ("lifecycle.stopSignal", YES),
    ("terminationMessagePolicy", YES),
    ("stdin", YES),
    ("stdinOnce", YES),
    ("tty", YES),
    ("envFrom", Rule::Empty),
    ("volumeDevices", Rule::Empty),
    ("restartPolicy", YES),
    ("restartPolicyRules", YES),
    // A TCP handler always fails, as in Kubernetes' own kubelet.
    ("lifecycle.postStart", YES),
    ("lifecycle.preStop", YES),
    // It says what a resize does to the container, and asks for none.
    ("resizePolicy", YES),
];

/// Fields of each of the three probes.
const PROBE: &[(&str, Rule)] = &[
    ("", WITHIN),
    (".exec", YES),
    (".httpGet", YES),
    (".tcpSocket", YES),
    (".grpc", YES),
    (".initialDelaySeconds", YES),
    (".timeoutSeconds", YES),
    (".periodSeconds", YES),
    (".successThreshold", YES),
    (".failureThreshold", YES),
    (".terminationGracePeriodSeconds", YES),
];

/// Lists that may be given empty, as manifests written by programs do.
const EMPTY_LISTS: &[&str] = &[
    "spec.ephemeralContainers",
    "spec.imagePullSecrets",
    "spec.resourceClaims",
    "spec.schedulingGates",
    "spec.serviceAccount",
    "spec.serviceAccountName",
];

/// Fields that only pods of the API server may have.
const API_POD: &[(&str, Rule)] = &[
    // Ephemeral containers are added through the API server, to pods that it has.
    ("spec.ephemeralContainers", WITHIN),
    ("spec.ephemeralContainers.targetContainerName", YES),
    ("spec.serviceAccount", YES),
    ("spec.serviceAccountName", YES),
    ("spec.imagePullSecrets", YES),
    ("spec.volumes.secret", YES),
    ("spec.volumes.configMap", YES),
    // What CSI drivers have replaced.
    ("spec.volumes.awsElasticBlockStore", YES),
    ("spec.volumes.azureDisk", YES),
    ("spec.volumes.azureFile", YES),
    ("spec.volumes.cinder", YES),
    ("spec.volumes.csi", YES),
    ("spec.volumes.ephemeral", YES),
    ("spec.volumes.gcePersistentDisk", YES),
    ("spec.volumes.gitRepo", YES),
    ("spec.volumes.persistentVolumeClaim", YES),
    ("spec.volumes.portworxVolume", YES),
    ("spec.volumes.vsphereVolume", YES),
    // The API server adds a projected volume with the service account's token.
    ("spec.volumes.projected.sources.secret", YES),
    ("spec.volumes.projected.sources.configMap", YES),
    ("spec.volumes.projected.sources.serviceAccountToken", YES),
];

/// Fields that only containers of the API server's pods may have.
const API_CONTAINER: &[(&str, Rule)] = &[
    ("envFrom", YES),
    ("volumeDevices", YES),
    ("env.valueFrom.secretKeyRef", YES),
    ("env.valueFrom.configMapKeyRef", YES),
];

impl Supported {
    /// The fields that this version supports in static pods.
    pub fn this_version() -> Self {
        let mut supported = Self { rules: BTreeMap::default() };
        for (path, rule) in POD {
            supported = supported.with(path, rule.clone());
        }
        for path in EMPTY_LISTS {
            supported = supported.with(path, Rule::Empty);
        }
        for list in ["spec.containers", "spec.initContainers"] {
            for (field, rule) in CONTAINER {
                supported = supported.with(&format!("{list}.{field}"), rule.clone());
            }
            for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
                for (field, rule) in PROBE {
                    supported = supported.with(&format!("{list}.{probe}{field}"), rule.clone());
                }
            }
        }
        supported
    }

    /// The fields that this version supports in pods of the API server, which may refer to its other objects.
    pub fn for_api_pods() -> Self {
        let rows = API_POD.iter().map(|(path, rule)| ((*path).to_owned(), rule));
        let of_container = |(field, rule)| (format!("spec.ephemeralContainers.{field}"), rule);
        let rows = rows.chain(CONTAINER.iter().map(|(field, rule)| of_container((*field, rule))));
        let lists = ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"];
        let in_lists = lists.iter().flat_map(|list| {
            API_CONTAINER.iter().map(move |(field, rule)| (format!("{list}.{field}"), rule))
        });
        let rows = rows.chain(in_lists);
        rows.fold(Self::this_version(), |supported, (path, rule)| supported.with(&path, rule.clone()))
    }

    /// The table with one row added or replaced. `path` leaves out indexes.
    #[must_use]
    pub fn with(mut self, path: &str, rule: Rule) -> Self {
        self.rules.insert(path.to_owned(), rule);
        self
    }

    /// The rule of a path without indexes.
    pub(super) fn rule(&self, path: &str) -> Option<&Rule> {
        self.rules.get(path)
    }
}
