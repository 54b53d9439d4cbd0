//! Wires ImageManager, which pulls images, keeps records of them and deletes those that are not used.

use image_manager::{ImageHistory, ImageManager, ImageManagerDeps, ImageMetrics, KeptAnswers};
use supervision::Seated;

use super::Wiring;

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<ImageManager>) -> prometheus::Result<()> {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let metrics = ImageMetrics::new();
    metrics.register(wiring.registry)?;
    metrics.configured(&settings.images.providers);
    let deps = ImageManagerDeps {
        images: wiring.operations.clone(),
        runtime: wiring.operations.clone(),
        usage: wiring.operations.clone(),
        stats: bridge.stats.clone(),
        configs: bridge.docker_configs.clone(),
        plugins: bridge.credential_plugins.clone(),
        records: bridge.pull_records.clone(),
        clock: bridge.clock.clone(),
        secrets: actors.objects.asked(),
        accounts: actors.objects.asked(),
        tokens: actors.objects.asked(),
        compute: bridge.compute.clone(),
        events: actors.events.address(),
        configuration: actors.configuration.address(),
        settings: settings.images.clone(),
        history: ImageHistory::default(),
        answers: KeptAnswers::default(),
        metrics,
    };
    let changed = wiring.changed();
    seat.start(&wiring.places.actors, move || {
        let settings =
            changed().map_or_else(|| deps.settings.clone(), |now| deps.settings.configured(&now.images));
        ImageManager::new(ImageManagerDeps { settings, ..deps.clone() })
    });
    Ok(())
}
